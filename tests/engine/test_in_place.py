"""A plan is refined by the times of steps inside the network."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pytest
import torch
from torch import nn

from convwright.core.finding import Interval
from convwright.core.kinds.problem import Problem
from convwright.core.policy import Policy
from convwright.core.problem import ConvProblem
from convwright.engine.blueprint import Blueprint
from convwright.engine.engine import Engine
from convwright.engine.export.exported import exported
from convwright.engine.in_place import fastest_in_place
from convwright.engine.passes.listed import passed
from convwright.engine.planning.assignment import Assignment
from convwright.engine.planning.costs import Costs
from convwright.engine.planning.planned import Planner
from convwright.engine.planning.searched_times import SearchedTimes
from convwright.engine.planning.times import TimedCandidate
from convwright.measuring.hardware.machine import device_facts
from convwright.settings import Mode
from convwright.store.store import Store
from convwright.tuning.asked import named
from convwright.tuning.trials.search_input import Progress

# The reference multiplies in the frequency domain, many times slower than PyTorch's own call for these small filters.
SLOW, FAST = "reference/fft", "torch/default"
MODEL = nn.Sequential(nn.Conv2d(8, 16, 3, padding=1), nn.Conv2d(16, 8, 3, padding=1)).eval()
X = torch.randn(2, 8, 48, 48)


class Misled(SearchedTimes):
    """Searches of which a busy machine disturbed those of the fast candidate."""

    def of_problems(
        self, problems: Sequence[Problem], progress: Progress
    ) -> Iterator[tuple[Problem, tuple[TimedCandidate, ...]]]:
        for problem in problems:
            us = {SLOW: 10.0, FAST: 1e6} if isinstance(problem, ConvProblem) else {FAST: 10.0}
            found = (
                (named(id_, problem, self.device, Policy()), Interval(time, time, time)) for id_, time in us.items()
            )
            yield problem, tuple(found)


def _exactly(time_us: float) -> Interval:
    return Interval(time_us, time_us, time_us)


@pytest.fixture
def planner() -> Planner:
    facts, store = device_facts(torch.device("cpu")), Store.open(None)
    network = passed(exported(MODEL, (X,), (X,)).network).network
    source = Misled(facts, Policy(), Mode.QUICK, store)
    return Planner(network, facts, Policy(), mode=Mode.QUICK, store=store, times=source)


def engine(planner: Planner, assignment: Assignment) -> Engine:
    structure, net = exported(MODEL, (X,), (X,)).structure, planner.network
    return Engine(Blueprint(assignment, net.constants, structure), device_facts(torch.device("cpu")))


def convolutions(assignment: Assignment) -> list[str]:
    return [str(step.candidate.id) for step in assignment.steps
            if step.candidate is not None and isinstance(step.operation, ConvProblem)]  # fmt: skip


def test_variants_compute_the_same(planner: Planner) -> None:
    planned = planner.assignment(Costs())
    assert convolutions(planned) == [SLOW, SLOW]
    variants = [*planner.variants(planned, Costs())]
    assert [FAST, FAST] in map(convolutions, variants)
    for each in variants:
        with torch.no_grad():
            torch.testing.assert_close(engine(planner, each)(X), MODEL(X), rtol=1e-4, atol=1e-4)


def test_a_candidate_whose_search_was_disturbed_is_timed_in_the_network(planner: Planner) -> None:
    best = fastest_in_place(planner, lambda planned: engine(planner, planned), [X])
    assert convolutions(best.assignment) == [FAST, FAST]


def test_a_plan_is_tried_once(planner: Planner) -> None:
    tried = list[list[str]]()

    def build(planned: Assignment) -> Engine:
        tried.append(convolutions(planned))
        return engine(planner, planned)

    fastest_in_place(planner, build, [X])
    variants = len([*planner.variants(planner.assignment(Costs()), Costs())])
    rounds = [tried[0], *tried[1 + variants :]]
    assert len({tuple(each) for each in rounds}) == len(rounds)
