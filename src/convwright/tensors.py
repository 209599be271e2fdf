"""Torch tensors of core's specs: the one seam between data about tensors and tensors."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor

from convwright.core.dtype import DType
from convwright.core.tensor_spec import TensorSpec
from convwright.errors import BadInput

_TORCH = {
    DType.FP64: torch.float64,
    DType.FP32: torch.float32,
    DType.FP16: torch.float16,
    DType.BF16: torch.bfloat16,
}
_CORE = {torch_dtype: dtype for dtype, torch_dtype in _TORCH.items()}


def torch_dtype(dtype: DType) -> torch.dtype:
    return _TORCH[dtype]


def core_dtype(dtype: torch.dtype) -> DType:
    """The storage type of a tensor; complex and integer tensors are refused here, in words."""
    if dtype not in _CORE:
        raise BadInput(f"convolutions are computed in {', '.join(DType)}, got {dtype}")
    return _CORE[dtype]


def spec_of(tensor: Tensor) -> TensorSpec:
    """What a problem needs to know of ``tensor``."""
    address = tensor.data_ptr()
    alignment = min(address & -address, 16) if address else 16
    return TensorSpec(tuple(tensor.shape), core_dtype(tensor.dtype), tensor.stride(), alignment)


def empty(spec: TensorSpec, device: torch.device | str) -> Tensor:
    """Uninitialised memory with the spec's strides."""
    return torch.empty_strided(spec.shape, spec.strides, dtype=torch_dtype(spec.dtype), device=device)


def carve(workspace: Tensor, offset_bytes: int, spec: TensorSpec) -> Tensor:
    """A tensor of ``spec`` that lies in a byte workspace at ``offset_bytes``."""
    raw = workspace[offset_bytes : offset_bytes + spec.span_bytes]
    return raw.view(torch_dtype(spec.dtype)).as_strided(spec.shape, spec.strides)


def allocator(spec: TensorSpec, device: torch.device) -> Callable[[], Tensor]:
    """Makes uninitialised tensors of ``spec``; on the current GPU by the call of PyTorch's own compiled programs,
    which is quicker than the public one."""
    shape, strides, dtype = spec.shape, spec.strides, torch_dtype(spec.dtype)
    quick = getattr(torch._C._dynamo.guards, "_empty_strided_cuda", None) if device.type == "cuda" else None
    if quick is None:
        return partial(torch.empty_strided, shape, strides, dtype=dtype, device=device)
    return partial(quick, shape, strides, dtype)
