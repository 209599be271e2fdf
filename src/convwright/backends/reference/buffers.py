"""The scratch memory of one plan: named tensors. Tensors that are never in use together share bytes."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from convwright.core.tensor_spec import TensorSpec
from convwright.graph.memory_plan import Buffer, plan_memory
from convwright.tensors import carve


class Buffers:
    """Tensors by name. A life is the first and the last step at which a tensor's content is needed."""

    def __init__(self, specs: Mapping[str, TensorSpec], lives: Mapping[str, tuple[int, int]]) -> None:
        self.specs = dict(specs)
        placed = plan_memory([Buffer(name, spec.span_bytes, *lives[name]) for name, spec in specs.items()])
        self.offsets, self.nbytes = placed.offsets, placed.nbytes

    def of(self, workspace: Tensor | None, device: torch.device) -> dict[str, Tensor]:
        """The tensors, in ``workspace`` or in newly allocated memory. They are not initialized."""
        if workspace is None:
            workspace = torch.empty(self.nbytes, dtype=torch.uint8, device=device)
        return {name: carve(workspace, self.offsets[name], spec) for name, spec in self.specs.items()}
