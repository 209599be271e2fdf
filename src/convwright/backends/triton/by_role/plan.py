"""A kernel made ready for one problem."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial

import torch
from torch import Tensor

from convwright.backends.triton.launching.kernel_plan import KernelPlan
from convwright.backends.triton.launching.launch import Launch
from convwright.core.binding import Bound, RolePlan
from convwright.core.candidate import Candidate
from convwright.core.device import DeviceFacts


class RoleKernelPlan(KernelPlan, RolePlan):
    """Runs a kernel on operands by role, in their order. Nothing is packed, and no workspace is needed."""

    def __init__(self, candidate: Candidate, device: DeviceFacts, launches: Sequence[Launch]) -> None:
        super().__init__(candidate, device, launches)
        problem = candidate.problem
        self._reads = [role for role in problem.operands if role not in problem.outputs]
        self._launch = launches[0]

    @classmethod
    def steps(cls, candidate: Candidate) -> int:
        return 1

    def bind(self, operands: Mapping[str, Tensor], workspace: Tensor | None = None) -> Bound:
        inputs = [operands[role] for role in self._reads]
        out = operands.get(self.candidate.problem.outputs[-1])
        return partial(self._anew, inputs) if out is None else self._into(inputs, out)

    def _anew(self, inputs: list[Tensor]) -> Tensor:
        return self._into(inputs, self._new_output())()

    def _into(self, inputs: list[Tensor], out: Tensor) -> Callable[[], Tensor]:
        launch, stream = self._launch, self._launch.stream
        if stream is None:
            stored = [_as_bytes(tensor) for tensor in (*inputs, out)]

            def interpreted() -> Tensor:
                launch(*stored)
                return out

            return interpreted
        addresses = [tensor.data_ptr() for tensor in (*inputs, out)]

        def launched() -> Tensor:
            launch.at(addresses, stream())
            return out

        launched.operands = inputs  # type: ignore[attr-defined]  # which are read as long as there is the call
        return launched


def _as_bytes(tensor: Tensor) -> Tensor:
    """A tensor of a dtype that is only copied, as the kernel takes it."""
    return tensor.view(torch.int8) if tensor.element_size() == 1 else tensor
