"""Backends for expressions whose candidates take as long as a test says, in a time of their own."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from torch import Tensor

from convwright.backends.torch_native.pointwise import TorchPointwisePlan
from convwright.core.binding import Bound, RolePlan
from convwright.core.candidate import Candidate, Offer, Refusal, Source
from convwright.core.device import DeviceFacts
from convwright.core.dtype import Arithmetic
from convwright.core.kinds.pointwise import PointwiseProblem
from convwright.core.plan import Plan
from convwright.core.policy import Policy
from tuning.made_backend import MADE, Way

WAYS: dict[str, Way] = {}


class TimedPlan(RolePlan):
    """PyTorch's result after so long, in a time of its own."""

    writes_out = False

    def __init__(self, candidate: Candidate, way: Way) -> None:
        self.candidate, self._way, self._right = candidate, way, TorchPointwisePlan(candidate)

    def bind(self, operands: Mapping[str, Tensor], workspace: Tensor | None = None) -> Bound:
        right = self._right.bind(operands, workspace)

        def call() -> Tensor:
            MADE.time.now_us += self._way.time_us
            return right() + 1 if self._way.wrong else right()

        return call


class TimedTorch:
    name = "torch"

    def fingerprint(self, device: DeviceFacts) -> str:
        return "1"

    def candidates(self, problem: PointwiseProblem, device: DeviceFacts, policy: Policy) -> Iterator[Offer]:
        yield Candidate(problem, "torch", "default", (), Arithmetic.FP32, 0, True, Source.RULE)

    def build(self, candidate: Candidate, device: DeviceFacts) -> Plan:
        return TimedPlan(candidate, Way(1000.0))


class TimedOwn(TimedTorch):
    name = "own"

    def candidates(self, problem: PointwiseProblem, device: DeviceFacts, policy: Policy) -> Iterator[Offer]:
        yield from (Candidate(problem, "own", each, (), Arithmetic.FP32, 0, True, Source.RULE) for each in WAYS)
        yield Refusal("own/never", "it is never there")

    def build(self, candidate: Candidate, device: DeviceFacts) -> Plan:
        return TimedPlan(candidate, WAYS[candidate.algorithm])
