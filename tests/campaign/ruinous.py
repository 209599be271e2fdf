"""Candidates of which one is right, one is wrong, one ends its process and one never ends."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from torch import Tensor

from convwright.backends.torch_native.backend import TorchNative
from convwright.core.candidate import Candidate, Offer
from convwright.core.device import DeviceFacts
from convwright.core.plan import Plan
from convwright.core.policy import Policy
from convwright.core.problem import ConvProblem
from tuning import made_backend


class _Plan:
    """PyTorch's own call, and what an algorithm does besides."""

    def __init__(self, candidate: Candidate, own: Plan) -> None:
        self.candidate, self._own = candidate, own
        self.workspace_bytes, self.writes_out, self.prepare = own.workspace_bytes, own.writes_out, own.prepare

    def __call__(self, *operands: Any, **named: Any) -> Tensor:
        made_backend.RUINOUS.get(self.candidate.algorithm, lambda: None)()
        result = self._own(*operands, **named)
        return result.add_(100) if self.candidate.algorithm == "wrong" else result


class Ruinous(made_backend.MadeTorch):
    """The first of its candidates is run by whoever warms up."""

    name = "ruinous"
    algorithms: tuple[str, ...] = ()

    def candidates(self, problem: ConvProblem, device: DeviceFacts, policy: Policy) -> Iterator[Offer]:
        yield from (made_backend.offer(problem, f"ruinous/{name}") for name in self.algorithms)

    def build(self, candidate: Candidate, device: DeviceFacts) -> Plan:
        own = TorchNative()
        offers = own.candidates(candidate.problem, device, Policy())
        return _Plan(candidate, own.build(next(each for each in offers if isinstance(each, Candidate)), device))
