"""Runs one engine of cuDNN's graph API, with one foreign call per convolution."""

from __future__ import annotations

import threading
from functools import partial

import torch
from torch import Tensor

from convwright import torch_api
from convwright.backends.cudnn.graph.attributes import Attribute, Kind
from convwright.backends.cudnn.graph.descriptor import Descriptor, cudnn, functions
from convwright.backends.cudnn.graph.engine import workspace_bytes
from convwright.backends.cudnn.graph.problem import UID, graph_operands
from convwright.backends.cudnn.library import handle
from convwright.core.candidate import Candidate
from convwright.core.direction import Role
from convwright.errors import BackendError, BadInput
from convwright.tensors import allocator, empty, spec_of, zeros

# Allocators reuse few addresses.
_MOST_PACKS = 64


class GraphPlan:
    """An execution plan of cuDNN's on one device.

    A call passes the operands' addresses in a variant pack; packs are cached by these addresses. A CUDA graph that
    captured a call needs this plan to stay alive.
    """

    writes_out = True

    def __init__(self, candidate: Candidate, plan: Descriptor, device: torch.device) -> None:
        problem = candidate.problem
        self.candidate = candidate
        self.workspace_bytes = workspace_bytes(plan)
        self._plan, self._address = plan, plan.address
        self._one_of_several = torch.cuda.device_count() > 1
        self._index: int = device.index
        self._weight_strides = {problem.w.strides}
        self._new_out = allocator(problem.output, device)
        self._new_workspace = partial(torch.empty, self.workspace_bytes, dtype=torch.uint8, device=device)
        # cuDNN's compiled pattern adds a bias even if the problem has none.
        added = bool(problem.epilogue) and not problem.epilogue.bias
        self._zeros = zeros(problem.k, problem.dtype.added, device) if added else None
        self._no_bias = 0 if self._zeros is None else self._zeros.data_ptr()
        needed = graph_operands(problem)
        order = (*problem.direction.operands, Role.BIAS, Role.RESIDUAL, problem.direction.output)
        self._places = tuple((at, role, needed[role].alignment) for at, role in enumerate(order) if role in needed)
        self._packs: dict[tuple[int, ...], Descriptor] = {}
        self._packing = threading.Lock()
        self._handles: dict[int, int | None] = {}
        self._execute = functions()["cudnnBackendExecute"]
        self._current_device = torch_api.current_gpu
        self._current_stream = torch_api.current_stream

    @property
    def text(self) -> str:
        """The plan as cuDNN serializes it."""
        return self._plan.text(Attribute.PLAN_JSON)

    def prepare(self, weight: Tensor) -> Tensor:
        """The weight with the plan's strides and alignment; the same tensor if it already has them."""
        wanted = self.candidate.problem.w
        if weight.data_ptr() % wanted.alignment == 0:
            if weight.stride() in self._weight_strides:
                return weight
            # A dimension of size 1 may have any stride, so one layout has several stride tuples.
            if spec_of(weight).strides == wanted.strides:
                self._weight_strides.add(weight.stride())
                return weight
        return empty(wanted, weight.device).copy_(weight.detach())

    def __call__(
        self,
        first: Tensor,
        second: Tensor,
        bias: Tensor | None = None,
        residual: Tensor | None = None,
        out: Tensor | None = None,
        workspace: Tensor | None = None,
    ) -> Tensor:
        if self._one_of_several and self._current_device() != self._index:
            with torch.cuda.device(self._index):
                return self(first, second, bias, residual, out, workspace)
        if out is None:
            out = self._new_out()
        if workspace is None and self.workspace_bytes:
            workspace = self._new_workspace()
        self.launch(
            first.data_ptr(),
            second.data_ptr(),
            0 if bias is None else bias.data_ptr(),
            0 if residual is None else residual.data_ptr(),
            out.data_ptr(),
            0 if workspace is None else workspace.data_ptr(),
            self._current_stream(self._index),
        )
        return out

    def launch(self, first: int, second: int, bias: int, residual: int, out: int, workspace: int, stream: int) -> None:
        """Run on these addresses, on this stream."""
        pointers = (first, second, bias or self._no_bias, residual, out, workspace)
        pack = self._packs.get(pointers) or self._packed(pointers)
        status = self._execute(self._handles.get(stream) or self._handle(stream), self._address, pack.address)
        if status:
            raise BackendError(f"{self.candidate.id}: {cudnn().explain(status)}")

    def _handle(self, stream: int) -> int | None:
        return self._handles.setdefault(stream, handle(self._index, stream).value)

    def _packed(self, pointers: tuple[int, ...]) -> Descriptor:
        for at, role, alignment in self._places:
            if not pointers[at]:
                raise BadInput(f"{self.candidate.id} needs the operand `{role}` of its problem, got None")
            if pointers[at] % alignment:
                raise BadInput(f"`{role}` must be aligned to {alignment} bytes, got the address {pointers[at]:#x}")
        if self.workspace_bytes and not pointers[-1]:
            raise BadInput(f"{self.candidate.id} needs a workspace of {self.workspace_bytes:,} bytes, got none")
        pack = (
            Descriptor(Kind.VARIANT_PACK)
            .set(Attribute.PACK_UIDS, *(UID[role] for _, role, _ in self._places))
            .set(Attribute.PACK_POINTERS, *(pointers[at] for at, _, _ in self._places))
            .set(Attribute.PACK_WORKSPACE, pointers[-1])
            .finalize()
        )
        with self._packing:
            if len(self._packs) >= _MOST_PACKS:
                del self._packs[next(iter(self._packs))]
            self._packs[pointers] = pack
        return pack
