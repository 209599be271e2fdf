"""Which problems of a network are searched for: those that a plan uses, and those that might be better."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from convwright.core.kinds.problem import Problem
from convwright.core.policy import Policy
from convwright.core.problem import ConvProblem
from convwright.core.profiles import profile
from convwright.core.tensor_spec import Layout
from convwright.engine.export.exported import exported
from convwright.engine.passes.listed import passed
from convwright.engine.planning import planned
from convwright.engine.planning.costs import Costs
from convwright.engine.planning.planned import Planner
from convwright.engine.planning.searched_times import SearchedTimes
from convwright.engine.planning.times import TimedCandidate
from convwright.graph.operations import NO_PROBLEM, Operation
from convwright.settings import Mode
from convwright.store.store import Store
from convwright.tuning.trials.search_input import Progress


class DenseBlock(nn.Module):
    def __init__(self, layers: int) -> None:
        super().__init__()
        self.convs = nn.ModuleList(nn.Conv2d(16 * number, 16, 3, padding=1) for number in range(1, layers + 1))

    def forward(self, x: Tensor) -> Tensor:
        found = [F.relu(x)]
        for conv in self.convs:
            found.append(conv(torch.cat(found, 1)).sigmoid() * 2)
        return torch.cat(found, 1).sum((2, 3))


def planner(dtype: torch.dtype, times: type[SearchedTimes] = SearchedTimes, layers: int = 3) -> Planner:
    model, x = DenseBlock(layers).to(dtype).eval(), torch.randn(8, 16, 32, 32, dtype=dtype)
    network = passed(exported(model, (x,), (x,)).network).network
    device, store = profile("h200"), Store.open(None)
    source = times(device, Policy(), Mode.HEURISTIC, store)
    return Planner(network, device, Policy(), mode=Mode.HEURISTIC, store=store, times=source)


def searched(made: Planner) -> list[ConvProblem]:
    possible = [each.operation for part in made._parts for each in part.possible]
    return [each for each in dict.fromkeys(possible) if isinstance(each, ConvProblem) and made._timed.knows(each)]


def layouts(operations: list[ConvProblem]) -> set[Layout]:
    return {each.x.layout for each in operations}


def lies_in_slices(operation: Operation) -> bool:
    return any(spec.span_bytes > spec.nbytes for spec in operation.operands.values())


@pytest.mark.slow
def test_slices_are_searched_for_where_they_are_chosen() -> None:
    made = planner(torch.float32)
    assert not any(map(lies_in_slices, searched(made)))
    assert layouts(searched(made)) == {Layout.NCHW, Layout.NHWC}
    steps = made.assignment(Costs()).steps
    assert all(step.candidate is not None for step in steps if not isinstance(step.operation, NO_PROBLEM))
    assert all(made._timed.knows(step.operation) for step in steps)


@pytest.mark.slow
def test_16_bits_are_searched_for_in_channels_last() -> None:
    made = planner(torch.float16)
    assert layouts(searched(made)) == {Layout.NHWC}
    steps = made.assignment(Costs()).steps
    assert all(made._timed.knows(step.operation) for step in steps)


def test_after_the_last_round_what_is_known_is_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(planned, "_ROUNDS", 1)
    made = planner(torch.float16, layers=2)
    steps = made.assignment(Costs()).steps
    assert all(step.candidate is not None for step in steps if not isinstance(step.operation, NO_PROBLEM))


class NotInChannelsLast(SearchedTimes):
    """A device on which nothing computes convolutions in channels last."""

    def of_problems(
        self, problems: Sequence[Problem], progress: Progress
    ) -> Iterator[tuple[Problem, tuple[TimedCandidate, ...]]]:
        for problem, found in super().of_problems(problems, progress):
            is_last = isinstance(problem, ConvProblem) and problem.x.layout is Layout.NHWC
            yield problem, () if is_last else found


@pytest.mark.slow
def test_what_is_like_something_that_nothing_computes_is_searched_for() -> None:
    made = planner(torch.float16, NotInChannelsLast)
    assert Layout.NCHW in layouts(searched(made))
    convolutions = [step for step in made.assignment(Costs()).steps if isinstance(step.operation, ConvProblem)]
    assert len(convolutions) == 3
    assert all(step.candidate is not None for step in convolutions)
