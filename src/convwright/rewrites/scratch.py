"""The tensors that a rewrite carves from the front of its workspace; the rest is the inner plan's."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from convwright.core.direction import Role
from convwright.core.memory_plan import aligned
from convwright.core.tensor_spec import TensorSpec
from convwright.tensors import carve

Carved = tuple[dict[Role, Tensor], Tensor | None]


def scratch_bytes(specs: Mapping[Role, TensorSpec]) -> int:
    """Bytes that tensors of ``specs`` take, each of them aligned."""
    return sum(aligned(spec.span_bytes) for spec in specs.values())


class Scratch:
    """Scratch tensors by role, and what remains of a workspace for an inner plan that needs ``inner_bytes``."""

    def __init__(self, specs: Mapping[Role, TensorSpec], inner_bytes: int) -> None:
        self.specs = dict(specs)
        self.own_bytes = scratch_bytes(specs)
        self.inner_bytes = inner_bytes
        self.workspace_bytes = self.own_bytes + inner_bytes
        self._last: tuple[int, Carved] | None = None

    def of(self, workspace: Tensor | None, device: torch.device) -> Carved:
        """The scratch tensors and the inner workspace in ``workspace``, or in memory of this call's own."""
        if workspace is None:
            return self._carve(torch.empty(self.workspace_bytes, dtype=torch.uint8, device=device))
        last, address = self._last, workspace.data_ptr()
        if last is None or last[0] != address:
            # Calls mostly share one workspace, and views cost microseconds. While views of it are kept, no other
            # memory can have its address; views of more than the last one would hold memory that nobody wants.
            last = self._last = (address, self._carve(workspace))
        return last[1]

    @torch.inference_mode(False)  # views made in inference mode could not be written to outside of it
    def _carve(self, workspace: Tensor) -> Carved:
        views, offset = {}, 0
        for role, spec in self.specs.items():
            views[role] = carve(workspace, offset, spec)
            offset += aligned(spec.span_bytes)
        return views, workspace[offset : offset + self.inner_bytes] if self.inner_bytes else None
