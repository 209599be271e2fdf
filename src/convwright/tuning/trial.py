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
from convwright.settings import Mode
from convwright.shortage import needing
from convwright.tensors import empty
from convwright.tuning.listing import build

Call = Callable[[], Tensor]


class Bench:
    """The operands that all candidates of one problem share. The cache is hot: a call finds what the last one left."""

    def __init__(self, problem: ConvProblem, device: DeviceFacts, mode: Mode, *, seed: int) -> None:
        assert device.torch_name is not None
        self.problem = problem
        self.facts = device
        self.mode = mode
        self.device = torch.device(device.torch_name)
        with needing(f"operands of {sum(spec.nbytes for spec in problem.operands.values()):,} bytes"):
            self.operands = operands(problem, Kind.NORMAL, self.device, seed=seed)
        self._workspace = torch.empty(0, dtype=torch.uint8, device=self.device)

    def workspace(self, nbytes: int) -> Tensor | None:
        """Scratch memory that every candidate shares, since they run one after the other."""
        if self._workspace.numel() < nbytes:
            with needing(f"its workspace of {nbytes:,} bytes"):
                self._workspace = torch.empty(nbytes, dtype=torch.uint8, device=self.device)
        return self._workspace[:nbytes] if nbytes else None


class Trial:
    """A candidate made ready on a bench. Building it raises what the backend raises."""

    def __init__(self, candidate: Candidate, bench: Bench) -> None:
        self.candidate = candidate
        self.bench = bench
        self.plan = build(candidate, bench.facts)
        self.look_us = 0.0  # what a first look says that a call takes
        self._call: Call | None = None

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

    def call(self) -> Call:
        """The packed candidate on the bench's operands; the same each time, since clocks know calls by identity."""
        if self._call is None:
            self._call = self._made()
        return self._call

    def _made(self) -> Call:
        problem, plan, given = self.bench.problem, self.plan, self.bench.operands
        first, second = (given[role] for role in problem.direction.operands)
        if Role.W in given:
            second = plan.prepare(second)
        workspace = self.bench.workspace(plan.workspace_bytes)
        return partial(plan, first, second, given.get(Role.BIAS), given.get(Role.RESIDUAL), None, workspace)

    def preparation(self) -> Call | None:
        """Packing the weight, or None where there is nothing to pack."""
        weight = self.bench.operands.get(Role.W)
        if weight is None:
            return None
        packed = self.plan.prepare(weight)
        # What a library packs for itself may have no address.
        if packed.layout is torch.strided and packed.data_ptr() == weight.data_ptr():
            return None
        return partial(self.plan.prepare, weight)
