"""Weights in the form that kernels read: packed by a kernel, or channels last."""

from __future__ import annotations

import torch
from torch import Tensor

from convwright import torch_api
from convwright.backends.triton.launching.launch import Launch
from convwright.backends.triton.operands import moves
from convwright.core.tensor_spec import TensorSpec, dense_strides
from convwright.tensors import empty, spec_of, strided_allocator


class Packing:
    """Packs weights with the layout of ``spec`` into a tensor of this ``shape``, on a GPU."""

    def __init__(
        self, launch: Launch, spec: TensorSpec, shape: tuple[int, ...], dtype: torch.dtype, device: torch.device
    ) -> None:
        self.launch = launch
        self._spec, self._shape, self._dtype = spec, shape, dtype
        self._on_gpu = strided_allocator(shape, dense_strides(shape), dtype, device)

    def __call__(self, weight: Tensor) -> Tensor:
        if weight.stride() != self._spec.strides and moves(spec_of(weight)) != moves(self._spec):
            weight = empty(self._spec, weight.device).copy_(weight)
        if not weight.is_cuda:
            return self._into(torch.empty(self._shape, dtype=self._dtype, device=weight.device), weight)
        if weight.get_device() == torch_api.current_gpu():
            return self._into(self._on_gpu(), weight)
        with torch.cuda.device(weight.device):
            return self._into(self._on_gpu(), weight)

    def _into(self, packed: Tensor, weight: Tensor) -> Tensor:
        self.launch(weight, packed)
        return packed


def channels_last_of(weight: Tensor) -> Tensor:
    """The weight in channels-last memory, whatever its strides are."""
    if weight.dim() == 4:
        return weight.contiguous(memory_format=torch.channels_last)
    if weight.dim() == 5:
        return weight.contiguous(memory_format=torch.channels_last_3d)
    laid = weight.movedim(1, -1)
    return weight if laid.is_contiguous() else laid.contiguous()
