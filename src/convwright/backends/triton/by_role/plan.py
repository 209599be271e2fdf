"""The plan of one or more kernels for a problem whose operands have roles."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial

import torch
from torch import Tensor

from convwright.backends.triton.by_role.tile import launches
from convwright.backends.triton.launching.kernel_plan import KernelPlan
from convwright.backends.triton.launching.launch import Launch
from convwright.core.binding import Bound, RolePlan
from convwright.core.candidate import Candidate
from convwright.core.device import DeviceFacts


class RoleKernelPlan(KernelPlan, RolePlan):
    """Runs kernels one after another on operands by role, and on a workspace if needed. Nothing is packed."""

    def __init__(self, candidate: Candidate, device: DeviceFacts, launches: Sequence[Launch]) -> None:
        super().__init__(candidate, device, launches)
        problem = candidate.problem
        self._reads = [role for role in problem.operands if role not in problem.outputs]
        self.workspace_bytes = candidate.workspace_bytes or 0
        place = torch.device(device.torch_name or "cpu")
        self._new_workspace = partial(torch.empty, self.workspace_bytes, dtype=torch.uint8, device=place)

    @classmethod
    def steps(cls, candidate: Candidate) -> int:
        return launches(candidate)

    def bind(self, operands: Mapping[str, Tensor], workspace: Tensor | None = None) -> Bound:
        inputs = [operands[role] for role in self._reads]
        out = operands.get(self.candidate.problem.outputs[-1])
        if out is None:
            return lambda: self._into(inputs, self._new_output(), workspace)()
        return self._into(inputs, out, workspace)

    def _into(self, inputs: list[Tensor], out: Tensor, workspace: Tensor | None) -> Callable[[], Tensor]:
        if self.workspace_bytes and workspace is None:
            workspace = self._new_workspace()
        between = [workspace] if self.workspace_bytes and workspace is not None else []
        ready, stream = self._launches, self._launches[0].stream
        if stream is None:
            stored = [*map(_as_bytes, (*inputs, out)), *between]

            def interpreted() -> Tensor:
                for launch in ready:
                    launch(*stored)
                return out

            return interpreted
        addresses = [tensor.data_ptr() for tensor in (*inputs, out, *between)]

        def launched() -> Tensor:
            here = stream()
            for launch in ready:
                launch.at(addresses, here)
            return out

        # The call keeps its operands alive.
        launched.operands = (*inputs, *between)  # type: ignore[attr-defined]
        return launched


def _as_bytes(tensor: Tensor) -> Tensor:
    """A tensor of a dtype that is only copied, in the form that the kernel takes."""
    return tensor.view(torch.int8) if tensor.element_size() == 1 else tensor
