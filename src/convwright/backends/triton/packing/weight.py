"""A weight packed by a kernel."""

from __future__ import annotations

import torch
from torch import Tensor

from convwright.backends.triton.launching.launch import Launch
from convwright.backends.triton.operands import moves
from convwright.core.tensor_spec import TensorSpec
from convwright.tensors import empty, spec_of


class Packing:
    """Lays weights that lie as ``spec`` says into numbers of this ``shape``."""

    def __init__(self, launch: Launch, spec: TensorSpec, shape: tuple[int, ...], dtype: torch.dtype) -> None:
        self.launch = launch
        self._spec, self._shape, self._dtype = spec, shape, dtype

    def __call__(self, weight: Tensor) -> Tensor:
        if weight.stride() != self._spec.strides and moves(spec_of(weight)) != moves(self._spec):
            weight = empty(self._spec, weight.device).copy_(weight)
        packed = torch.empty(self._shape, dtype=self._dtype, device=weight.device)
        if weight.is_cuda and weight.get_device() != torch.cuda.current_device():
            with torch.cuda.device(weight.device):
                self.launch(weight, packed)
        else:
            self.launch(weight, packed)
        return packed
