"""An estimate for ``optimize``: a plan in one layout, with the time of each step alone. ``optimize`` itself also tries
the other layout and times steps in the network, so that its engine may be faster or slower."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import inf
from typing import Any

from torch import Tensor

from convwright import torch_api
from convwright.core.device import DeviceFacts
from convwright.core.kinds.copy import CopyProblem
from convwright.core.kinds.problem import Problem
from convwright.core.policy import Policy
from convwright.core.tensor_spec import Layout
from convwright.engine.capture.example import Subject
from convwright.engine.capture.unchanged import unchanged
from convwright.engine.export.exported import exported
from convwright.engine.network import Network
from convwright.engine.passes.listed import passed
from convwright.engine.planning.assignment import Assignment
from convwright.engine.planning.costs import Costs
from convwright.engine.planning.planned import Planner
from convwright.engine.planning.searched_times import SearchedTimes
from convwright.engine.planning.times import TimedCandidate
from convwright.errors import BadInput, ConvwrightError
from convwright.graph.layouts import layouts_of
from convwright.graph.operations import NOTHING_RUNS, Operation
from convwright.settings import Mode
from convwright.store.store import Store
from convwright.tuning.choose import call_us, choose
from convwright.tuning.find import find
from convwright.tuning.trials.search_input import Progress


@dataclass(frozen=True, slots=True)
class Optimized:
    """``steps`` run one after the other. Their times add up to ``modelled_us``, and those of PyTorch's own calls for
    the same steps to ``own_us``. Neither sum contains the ``unmeasured`` steps. ``refused`` says why there is no
    plan."""

    steps: int = 0
    modelled_us: float = 0.0
    own_us: float = 0.0
    layout: Layout = Layout.NCHW
    unmeasured: int = 0
    refused: str | None = None

    def to_json(self) -> dict[str, Any]:
        if self.refused is not None:
            return {"refused": self.refused}
        return {
            "steps": self.steps, "modelled_us": self.modelled_us, "own_us": self.own_us, "layout": self.layout,
            "unmeasured": self.unmeasured,
        }  # fmt: skip


def optimized(
    subject: Subject, layout: Layout, device: DeviceFacts, policy: Policy, mode: Mode, store: Store, progress: Progress
) -> Optimized:
    """Plan the network with images in one layout. Problems that the store knows are not searched again."""
    try:
        network, times = _network(subject), _InOneLayout(device, policy, mode, store, layout)
        planner = Planner(
            network, device, policy, mode=mode, store=store, progress=progress, sliced=False, times=times
        )  # fmt: skip
        return times.summed(planner.assignment(Costs()))
    except ConvwrightError as error:
        return Optimized(refused=str(error))


def _network(subject: Subject) -> Network:
    tensors = torch_api.flatten(subject.args)[0]
    if subject.module is None:
        raise BadInput("it takes a model that is an nn.Module")
    if subject.kwargs or not all(isinstance(each, Tensor) for each in tensors):
        raise BadInput("it takes an example that is a tensor, or a tuple of tensors")
    if subject.module.training:
        raise BadInput("the model is in training mode: call model.eval() first")
    with unchanged(subject.module):
        return passed(exported(subject.module, subject.args, tensors).network).network


class _InOneLayout(SearchedTimes):
    """The winners of searches under the caller's policy, with constant weights. Problems in the other layout are left
    out, except for copies."""

    def __init__(self, device: DeviceFacts, policy: Policy, mode: Mode, store: Store, layout: Layout) -> None:
        super().__init__(device, policy, mode, store)
        self._planning, self._policy, self._layout = self._policy, policy, layout
        self._own_us: dict[Operation, float] = {}

    def summed(self, planned: Assignment) -> Optimized:
        """The steps of a plan that run something, and the sums of their times."""
        steps = [step for step in planned.steps if not isinstance(step.operation, NOTHING_RUNS)]
        times = [
            (step.time_us.value, self._own_us.get(step.operation, step.time_us.value))
            for step in steps
            if step.time_us.high < inf
        ]
        return Optimized(
            len(steps), sum(ours for ours, _ in times), sum(own for _, own in times), self._layout,
            len(steps) - len(times),
        )  # fmt: skip

    def of_problems(
        self, problems: Sequence[Problem], progress: Progress
    ) -> Iterator[tuple[Problem, tuple[TimedCandidate, ...]]]:
        wanted = [each for each in problems if isinstance(each, CopyProblem) or self._has_layout(each)]
        return super().of_problems(wanted, progress)

    def _has_layout(self, problem: Problem) -> bool:
        return all(spec.layout is self._layout for spec in problem.operands.values() if len(layouts_of(spec)) > 1)

    def _found(self, problem: Problem) -> tuple[TimedCandidate, ...]:
        try:
            found = find(problem, self.device, self._policy, mode=self._mode, store=self._store)
        except ConvwrightError:  # nothing here computes the problem
            return ()
        if found.baseline is not None and found.baseline.measurement is not None:
            self._own_us[problem] = call_us(found.baseline, self._planning).value
        rows = choose([verdict.finding for verdict in found.verdicts], found.baseline, self._planning)
        best = next((each.finding for each in rows if each.won), None)
        return super()._found(problem) if best is None else ((best.candidate, call_us(best, self._planning)),)
