"""One candidate on real operands, ready to run, check and time."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from functools import partial
from typing import Any

import torch
from torch import Tensor

from convwright.core.binding import bind
from convwright.core.candidate import Candidate
from convwright.core.device import DeviceFacts
from convwright.core.direction import Role
from convwright.core.kinds.problem import Problem
from convwright.measuring.checking.data import Kind, operands
from convwright.measuring.memory import settle_heap
from convwright.settings import Mode
from convwright.shortage import needing
from convwright.tensors import empty, spoil_
from convwright.tuning import listing
from convwright.tuning.listing import build
from convwright.tuning.trials.unchanged import unchanged

Call = Callable[[], Tensor]


class Bench:
    """The operands shared by all candidates of a problem. The cache is hot: a call finds what the last one left."""

    def __init__(self, problem: Problem, device: DeviceFacts, mode: Mode, *, seed: int) -> None:
        assert device.torch_name is not None
        self.problem: Any = problem
        self.facts = device
        self.mode = mode
        self.device = torch.device(device.torch_name)
        if self.device.type == "cpu":
            settle_heap()
        with needing(f"operands of {sum(spec.nbytes for spec in problem.operands.values()):,} bytes"):
            self.operands = operands(problem, Kind.NORMAL, self.device, seed=seed)
        self._workspace = torch.empty(0, dtype=torch.uint8, device=self.device)

    def workspace(self, nbytes: int) -> Tensor | None:
        """Scratch memory that candidates share, since they run one after the other. Calls bound before it grows keep
        the old memory."""
        if self._workspace.numel() < nbytes:
            self._workspace = self._workspace.new_empty(0)  # free the old memory first
            with needing(f"its workspace of {nbytes:,} bytes"):
                self._workspace = torch.empty(nbytes, dtype=torch.uint8, device=self.device)
        return self._workspace[:nbytes] if nbytes else None


class Trial:
    """A candidate built on a bench. Building it raises what the backend raises."""

    def __init__(self, candidate: Candidate, bench: Bench) -> None:
        self.candidate = candidate
        self.bench = bench
        self.plan = build(candidate, bench.facts)
        self.look_us = 0.0  # time of a call by quick timing
        self._call: Call | None = None

    def run(self, given: dict[Any, Tensor]) -> Tensor:
        """One result, computed over outputs and a workspace filled with NaN."""
        workspace = self.bench.workspace(self.plan.workspace_bytes)
        if workspace is not None:
            workspace.fill_(0xFF)  # NaN in every floating-point format
        # Others are tested not to change their operands.
        with unchanged(given) if listing.only_here(self.candidate) else nullcontext():
            return self._bound(given, self._out(given), workspace)()

    def _out(self, given: dict[Any, Tensor]) -> Tensor | None:
        """Memory for a result: its previous contents if the result is added to them, else NaN."""
        held = given.get(Role.BEFORE)
        if held is None and not self.plan.writes_out:
            return None
        out = empty(self.bench.problem.output, self.bench.device)
        return spoil_(out) if held is None else out.copy_(held)

    def _bound(self, given: dict[Any, Tensor], out: Tensor | None, workspace: Tensor | None) -> Call:
        operands = {role: tensor for role, tensor in given.items() if role != Role.BEFORE}
        return bind(self.plan, operands if out is None else operands | {self.bench.problem.outputs[-1]: out}, workspace)

    def call(self) -> Call:
        """The packed candidate on the bench's operands. It is the same object until released, since clocks identify
        calls by identity."""
        if self._call is None:
            self._call = self._made()
        return self._call

    def let_go(self) -> None:
        """Release the packed weight and the workspace until the next call."""
        self._call = None

    def _made(self) -> Call:
        given, workspace = dict(self.bench.operands), self.bench.workspace(self.plan.workspace_bytes)
        if Role.DB in self.bench.problem.outputs:
            given[Role.DB] = empty(self.bench.problem.operands[Role.DB], self.bench.device).zero_()
        # Repeated additions make an output useless, but cost the same.
        return self._bound(given, self._out(given) if Role.BEFORE in given else None, workspace)

    def preparation(self) -> Call | None:
        """A call that packs the weight, or None if there is nothing to pack."""
        weight = self.bench.operands.get(Role.W)
        if weight is None:
            return None
        packed = self.plan.prepare(weight)
        # What a library packs for itself may have no address.
        if packed.layout is torch.strided and packed.data_ptr() == weight.data_ptr():
            return None
        return partial(self.plan.prepare, weight)
