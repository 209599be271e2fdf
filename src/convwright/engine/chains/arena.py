"""One block of memory for everything between a network's input and its output."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from convwright.engine.chains.steps import Step
from convwright.graph.memory_plan import Buffer, plan_memory
from convwright.tensors import aligned_bytes, carve


def buffers_of(steps: Sequence[Step]) -> tuple[Buffer, ...]:
    """What must lie somewhere, and during which steps.

    A step writes its activation and the next one reads it. A workspace is needed during its step only, so that all
    of them, and activations that are not alive then, can share one place.
    """
    activations = [
        Buffer(activation(number), step.problem.y.span_bytes, number, number + 1)
        for number, step in enumerate(steps[:-1])
    ]
    workspaces = [
        Buffer(workspace(number), step.plan.workspace_bytes, number, number)
        for number, step in enumerate(steps)
        if step.plan.workspace_bytes
    ]
    return (*activations, *workspaces)


def activation(number: int) -> str:
    """The name of the buffer between step ``number`` and the next."""
    return f"activation {number}"


def workspace(number: int) -> str:
    """The name of the buffer that step ``number`` works in."""
    return f"workspace {number}"


class Arena:
    """The memory itself, and what was carved from it: activations by step, workspaces by step (None: not needed)."""

    def __init__(self, steps: Sequence[Step], device: torch.device) -> None:
        self.buffers = buffers_of(steps)
        self.plan = plan_memory(self.buffers)
        self.memory = aligned_bytes(self.plan.nbytes, device)
        offsets = self.plan.offsets
        self.activations = [
            carve(self.memory, offsets[activation(number)], step.problem.y) for number, step in enumerate(steps[:-1])
        ]
        self.workspaces = [
            self._bytes(offsets[workspace(number)], step.plan.workspace_bytes) if step.plan.workspace_bytes else None
            for number, step in enumerate(steps)
        ]

    def _bytes(self, offset: int, nbytes: int) -> Tensor:
        return self.memory[offset : offset + nbytes]
