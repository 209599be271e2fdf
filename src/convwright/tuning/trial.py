"""One candidate on real operands: ready to be run once, checked and timed."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor

from convwright.core.candidate import Candidate
from convwright.core.device import DeviceFacts
from convwright.core.direction import Role
from convwright.core.problem import ConvProblem
from convwright.measuring.data import Kind, operands
from convwright.tensors import empty
from convwright.tuning.listing import build

Call = Callable[[], Tensor]
_MOST_ROTATED_BYTES = 512 << 20
_MOST_ROTATED_WEIGHTS = 64


class Bench:
    """The operands that all candidates of one problem share.

    Weights are rotated past the device's cache between calls while the input stays warm: so a layer meets them
    inside a network. Where the cache's size is not known there is one set.
    """

    def __init__(self, problem: ConvProblem, device: DeviceFacts, *, seed: int) -> None:
        assert device.torch_name is not None
        self.problem = problem
        self.facts = device
        self.device = torch.device(device.torch_name)
        self.operands = operands(problem, Kind.NORMAL, self.device, seed=seed)
        self.weights = _rotated(self.operands, problem, device)
        self._workspace = torch.empty(0, dtype=torch.uint8, device=self.device)

    @property
    def cache(self) -> str:
        return "x warm, w cold" if len(self.weights) > 1 else "hot"

    def workspace(self, nbytes: int) -> Tensor | None:
        """Scratch memory that every candidate shares, since they run one after the other."""
        if self._workspace.numel() < nbytes:
            self._workspace = torch.empty(nbytes, dtype=torch.uint8, device=self.device)
        return self._workspace[:nbytes] if nbytes else None


def _rotated(given: dict[Role, Tensor], problem: ConvProblem, device: DeviceFacts) -> list[Tensor]:
    """The weight, in as many copies as push each other out of the cache."""
    weight = given.get(Role.W)
    if weight is None:
        return []
    nbytes = max(problem.w.nbytes, 1)
    wanted = -(-2 * (device.cache_bytes or 0) // nbytes)
    copies = max(1, min(wanted, _MOST_ROTATED_WEIGHTS, _MOST_ROTATED_BYTES // nbytes))
    return [weight, *(empty(problem.w, weight.device).copy_(weight) for _ in range(copies - 1))]


class Trial:
    """A candidate made ready on a bench. Building it raises what the backend raises."""

    def __init__(self, candidate: Candidate, bench: Bench) -> None:
        self.candidate = candidate
        self.bench = bench
        self.plan = build(candidate, bench.facts)

    def run(self, given: dict[Role, Tensor]) -> Tensor:
        """One result, computed over outputs and a workspace filled with NaN."""
        problem, plan = self.bench.problem, self.plan
        out = empty(problem.output, self.bench.device).fill_(torch.nan) if plan.writes_out else None
        workspace = self.bench.workspace(plan.workspace_bytes)
        if workspace is not None:
            workspace.fill_(0xFF)  # NaN in every floating-point format
        first, second = (given[role] for role in problem.direction.operands)
        if Role.W in given:
            second = plan.prepare(second)
        return plan(first, second, given.get(Role.BIAS), given.get(Role.RESIDUAL), out, workspace)

    def calls(self) -> list[Call]:
        """Equivalent calls of the packed candidate, one per copy of the weight."""
        problem, plan, given = self.bench.problem, self.plan, self.bench.operands
        first, second = (given[role] for role in problem.direction.operands)
        seconds = [plan.prepare(weight) for weight in self.bench.weights] if Role.W in given else [second]
        workspace = self.bench.workspace(plan.workspace_bytes)
        rest = (given.get(Role.BIAS), given.get(Role.RESIDUAL), None, workspace)
        return [partial(plan, first, each, *rest) for each in seconds]

    def preparation(self) -> Call | None:
        """Packing the weight, or None where there is nothing to pack."""
        weights = self.bench.weights
        if not weights or self.plan.prepare(weights[0]).data_ptr() == weights[0].data_ptr():
            return None
        return partial(self.plan.prepare, weights[0])
