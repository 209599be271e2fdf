"""The plan of several kernels that run one after another."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from enum import IntEnum
from functools import partial
from operator import itemgetter

import torch
from torch import Tensor

from convwright.backends.triton.launching.kernel_plan import KernelPlan, wrong_operands
from convwright.backends.triton.launching.launch import Launch
from convwright.core.candidate import Candidate
from convwright.core.device import DeviceFacts
from convwright.core.direction import Role
from convwright.core.fusing import rare_operands
from convwright.errors import BadInput


class Operand(IntEnum):
    """An operand of a kernel: an operand of the call, the workspace, or its second part."""

    FIRST, SECOND, BIAS, RESIDUAL, OUT, WORKSPACE, SECOND_PART, Z, DB, SCALE = range(10)


class KernelSequence(KernelPlan):
    """One configuration of some kernels."""

    def __init__(self, candidate: Candidate, device: DeviceFacts, launches: Sequence[Launch]) -> None:
        super().__init__(candidate, device, launches)
        place, operands = torch.device(device.torch_name or "cpu"), self.operands(candidate)
        self.workspace_bytes = candidate.workspace_bytes or 0
        self._second_part_from = self.second_part_from(candidate)
        picks = [itemgetter(*places) for places in operands]
        self._steps = tuple(zip(launches[: len(operands)], picks, strict=True))
        self._stream = launches[0].stream
        self._new_workspace = partial(torch.empty, self.workspace_bytes, dtype=torch.uint8, device=place)

    @staticmethod
    @abstractmethod
    def operands(candidate: Candidate) -> Sequence[Sequence[Operand]]:
        """The operands of each kernel that a call launches, in order."""

    @classmethod
    def steps(cls, candidate: Candidate) -> int:
        return len(cls.operands(candidate))

    @staticmethod
    def second_part_from(candidate: Candidate) -> int:
        """Where the second part of the workspace begins: data of another kernel than the first, or sums of parts."""
        return 0

    def _run(
        self,
        first: Tensor,
        second: Tensor,
        bias: Tensor | None,
        residual: Tensor | None,
        out: Tensor | None,
        workspace: Tensor | None,
        z: Tensor | None = None,
        db: Tensor | None = None,
        scale: Tensor | None = None,
    ) -> Tensor:
        if out is None:
            out = self._new_output()
        if workspace is None and self.workspace_bytes:
            workspace = self._new_workspace()
        if self._stream is None:
            second_part = (
                workspace[self._second_part_from :] if workspace is not None and self._second_part_from else workspace
            )
            tensors = (first, second, bias, residual, out, workspace, second_part, z, db, scale)
            for launch, picked in self._steps:
                launch(*picked(tensors))
            return out
        given = (first, second, bias, residual, out, workspace, workspace, z, db, scale)
        addresses = [0 if tensor is None else tensor.data_ptr() for tensor in given]
        addresses[Operand.SECOND_PART] += self._second_part_from
        self._run_at(addresses, self._stream())
        return out

    def _run_at(self, addresses: Sequence[int], stream: int) -> None:
        """Run on the addresses of all operands, 0 for a missing one."""
        for launch, picked in self._steps:
            launch.at(picked(addresses), stream)


class SequencePlan(KernelSequence):
    """Runs the kernels, for an epilogue without named operands."""

    def __init__(self, candidate: Candidate, device: DeviceFacts, launches: Sequence[Launch]) -> None:
        super().__init__(candidate, device, launches)
        self._takes = (candidate.problem.epilogue.bias, candidate.problem.epilogue.residual)

    def __call__(
        self,
        first: Tensor,
        second: Tensor,
        bias: Tensor | None = None,
        residual: Tensor | None = None,
        out: Tensor | None = None,
        workspace: Tensor | None = None,
    ) -> Tensor:
        if (bias is not None, residual is not None) != self._takes:
            raise BadInput(wrong_operands(self.candidate, bias, residual))
        return self._run(first, second, bias, residual, out, workspace)

    def launch(self, first: int, second: int, bias: int, residual: int, out: int, workspace: int, stream: int) -> None:
        """Run on these addresses. The weight must be a prepared one."""
        if (bool(bias), bool(residual)) != self._takes:
            raise BadInput(wrong_operands(self.candidate, bias or None, residual or None))
        if self.workspace_bytes and not workspace:
            raise BadInput(f"{self.candidate.id} needs a workspace of {self.workspace_bytes:,} bytes, got none")
        second_part = workspace + self._second_part_from
        self._run_at((first, second, bias, residual, out, workspace, second_part, 0, 0, 0), stream)


class NamedOperandsPlan(KernelSequence):
    """Runs kernels that fuse an extended epilogue, whose operands are passed by name."""

    def __init__(self, candidate: Candidate, device: DeviceFacts, launches: Sequence[Launch]) -> None:
        super().__init__(candidate, device, launches)
        self._wanted = {*rare_operands(candidate.problem)} | (_ADDED & candidate.problem.operands.keys())

    def __call__(
        self,
        first: Tensor,
        second: Tensor,
        bias: Tensor | None = None,
        residual: Tensor | None = None,
        out: Tensor | None = None,
        workspace: Tensor | None = None,
        *,
        scale: Tensor | None = None,
        z: Tensor | None = None,
        db: Tensor | None = None,
    ) -> Tensor:
        given = {Role.BIAS: bias, Role.RESIDUAL: residual, Role.SCALE: scale, Role.Z: z, Role.DB: db}
        named = {role for role, operand in given.items() if operand is not None}
        if named != self._wanted:
            wanted = _listed(self._wanted)
            raise BadInput(f"{self.candidate.id} needs {wanted} besides its operands, got {_listed(named)}")
        return self._run(first, second, bias, residual, out, workspace, z, db, scale)


_ADDED = {Role.BIAS, Role.RESIDUAL}


def _listed(roles: set[Role]) -> str:
    return " and ".join(f"`{role}`" for role in sorted(roles)) or "nothing"
