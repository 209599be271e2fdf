"""Scratch tensors at the front of a rewrite's workspace; the rest belongs to the inner plan."""

from __future__ import annotations

from collections.abc import Mapping
from weakref import ref

import torch
from torch import Tensor

from convwright import torch_api
from convwright.core.direction import Role
from convwright.graph.memory_plan import aligned
from convwright.rewrites.embedding import Embedded, Embedding
from convwright.tensors import carve

Carved = tuple[dict[Role, Embedded], Tensor | None]


def scratch_bytes(embeddings: Mapping[Role, Embedding]) -> int:
    """The aligned size of all scratch tensors."""
    return sum(aligned(embedding.spec.span_bytes) for embedding in embeddings.values())


class Scratch:
    """Scratch tensors by role, and the rest of a workspace for an inner plan that needs ``inner_bytes``."""

    def __init__(self, embeddings: Mapping[Role, Embedding], inner_bytes: int) -> None:
        self.embeddings = dict(embeddings)
        self.inner_bytes = inner_bytes
        self.workspace_bytes = scratch_bytes(embeddings) + inner_bytes
        self._last: tuple[dict[int, Carved], ref[Tensor] | None] = {}, None

    def of(self, workspace: Tensor | None, device: torch.device) -> Carved:
        """The scratch tensors and the inner workspace inside ``workspace``, or in new memory."""
        if not self.embeddings:
            return {}, workspace
        if workspace is None:
            return self._carve(torch.empty(self.workspace_bytes, dtype=torch.uint8, device=device))
        # Most calls share one workspace, and making views costs microseconds.
        carved = self._last[0].get(workspace.data_ptr())
        return self._kept(workspace) if carved is None else carved

    def _kept(self, workspace: Tensor) -> Carved:
        """Views kept as long as the workspace: they hold its memory, which captured graphs take from a pool and which a
        larger workspace replaces. Until then no other memory has this address."""
        carved = self._carve(workspace.data)  # these views hold the memory, but not the workspace tensor itself
        kept = {workspace.data_ptr(): carved}
        base = torch_api.base_of(workspace)
        owner = workspace if base is None else base
        self._last = kept, ref(owner, lambda _: kept.clear())
        return carved

    @torch.inference_mode(False)  # inference-mode views could not be written outside of that mode
    def _carve(self, workspace: Tensor) -> Carved:
        made, offset = {}, 0
        for role, embedding in self.embeddings.items():
            made[role] = Embedded(embedding, carve(workspace, offset, embedding.spec))
            offset += aligned(embedding.spec.span_bytes)
        return made, workspace[offset : offset + self.inner_bytes] if self.inner_bytes else None
