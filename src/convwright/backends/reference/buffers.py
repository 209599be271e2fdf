"""The scratch memory of one plan: named tensors, placed so that those which never live together share bytes."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from convwright.core.tensor_spec import TensorSpec
from convwright.graph.memory_plan import Buffer, plan_memory
from convwright.tensors import carve


class Buffers:
    """Tensors by name. A life is the first and the last step at which the content of one must stay intact."""

    def __init__(self, specs: Mapping[str, TensorSpec], lives: Mapping[str, tuple[int, int]]) -> None:
        self.specs = dict(specs)
        placed = plan_memory([Buffer(name, spec.span_bytes, *lives[name]) for name, spec in specs.items()])
        self.offsets, self.nbytes = placed.offsets, placed.nbytes

    def of(self, workspace: Tensor | None, device: torch.device) -> dict[str, Tensor]:
        """The tensors in ``workspace``, or in memory of this call's own. Their content is whatever lay there."""
        if workspace is None:
            workspace = torch.empty(self.nbytes, dtype=torch.uint8, device=device)
        return {name: carve(workspace, self.offsets[name], spec) for name, spec in self.specs.items()}
