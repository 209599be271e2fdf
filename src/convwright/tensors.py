"""Torch tensors of core's specs: the one seam between data about tensors and tensors."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from convwright.core.dtype import IN_PYTORCH, DType
from convwright.core.epilogue import Activation
from convwright.core.tensor_spec import TensorSpec, same_order
from convwright.errors import BadInput

_TORCH = {
    DType.FP64: torch.float64,
    DType.FP32: torch.float32,
    DType.FP16: torch.float16,
    DType.BF16: torch.bfloat16,
    DType.INT8: torch.int8,
    DType.FP8_E4M3: torch.float8_e4m3fn,
    DType.FP8_E5M2: torch.float8_e5m2,
}
_CORE = {torch_dtype: dtype for dtype, torch_dtype in _TORCH.items()}
NARROW = frozenset(torch_dtype for dtype, torch_dtype in _TORCH.items() if dtype.narrow)
# Of dtypes that are neither these nor narrow, calls are PyTorch's own.
SERVED = frozenset(_TORCH[dtype] for dtype in IN_PYTORCH)
_OVERLAPS = 1  # what PyTorch says of a tensor whose elements share memory for sure

# What functions of torch.nn.functional end in, which has forms that work in place.
_nn: Any = torch._C._nn
_ACTIVATED: dict[Activation, Callable[[Tensor], Tensor]] = {
    Activation.RELU: torch.relu,
    Activation.SILU: F.silu,
    Activation.GELU: F.gelu,
    Activation.HARDSWISH: F.hardswish,
}
_IN_PLACE: dict[Activation, Callable[[Tensor], Tensor]] = {
    Activation.RELU: torch.relu_,
    Activation.SILU: _nn.silu_,
    Activation.GELU: _nn.gelu_,
    Activation.HARDSWISH: _nn.hardswish_,
}


def torch_dtype(dtype: DType) -> torch.dtype:
    return _TORCH[dtype]


def core_dtype(dtype: torch.dtype, among: tuple[DType, ...] = tuple(DType)) -> DType:
    """The storage type of a tensor; what is none of these, as complex and wide integers are, is refused in words."""
    known = _CORE.get(dtype)
    if known not in among:
        raise BadInput(f"convolutions are computed in {', '.join(among)}, got {dtype}")
    return known


def address_of(tensor: Tensor) -> int:
    """Where the elements of ``tensor`` begin, told to a reader; 0 where it has none. ``data_ptr`` gives leave to write:
    a tensor that shares its memory until one of both is written to would be copied."""
    begins: int = torch._C._data_address(tensor)  # type: ignore[attr-defined]
    return begins and begins + int(tensor.storage_offset()) * tensor.element_size()


def spec_of(tensor: Tensor) -> TensorSpec:
    """What a problem needs to know of ``tensor``."""
    address = address_of(tensor)
    alignment = min(address & -address, 16) if address else 16
    return TensorSpec(tuple(tensor.shape), core_dtype(tensor.dtype), tensor.stride(), alignment)


def empty(spec: TensorSpec, device: torch.device | str) -> Tensor:
    """Uninitialised memory with the spec's strides."""
    return torch.empty_strided(spec.shape, spec.strides, dtype=torch_dtype(spec.dtype), device=device)


def zeros(count: int, dtype: DType, device: torch.device) -> Tensor:
    """So many zeros, which are there when this returns: whoever reads them may be on another stream."""
    made = torch.zeros(count, dtype=torch_dtype(dtype), device=device)
    if made.is_cuda and not torch.cuda.is_current_stream_capturing():
        torch.cuda.current_stream(device).synchronize()
    return made


def lies_as(tensor: Tensor, spec: TensorSpec) -> bool:
    """Whether a tensor of the spec's shape has its strides, but for those along single elements, which say nothing."""
    return same_order(spec.shape, tensor.stride(), spec.strides)


def overlaps_itself(tensor: Tensor) -> bool:
    """Whether PyTorch knows for sure that elements of a tensor share memory."""
    return torch._debug_has_internal_overlap(tensor) == _OVERLAPS


def laid_(made: Tensor, spec: TensorSpec) -> Tensor:
    """A result with the strides of the spec, along single elements, too: itself where it lies so, or else a copy."""
    if made.stride() == spec.strides:
        return made
    return made.as_strided_(spec.shape, spec.strides) if lies_as(made, spec) else empty(spec, made.device).copy_(made)


def unviewed(tensor: Tensor) -> Tensor:
    """The same memory as a tensor that is no view: one that was made where autograd did not look could not be changed
    in place where it does.

    >>> unviewed(torch.zeros(1, 3).squeeze(0))._is_view()
    False
    """
    if not tensor._is_view():
        return tensor
    return torch.empty(0, dtype=tensor.dtype, device=tensor.device).set_(
        tensor.untyped_storage(), tensor.storage_offset(), tensor.shape, tensor.stride()
    )


def spoil_(tensor: Tensor) -> Tensor:
    """Fill a tensor with what nothing should be made of: NaN, and in int8, which has none, its least number."""
    return tensor.fill_(torch.nan if tensor.is_floating_point() else -128)


def carve(workspace: Tensor, offset_bytes: int, spec: TensorSpec) -> Tensor:
    """A tensor of ``spec`` that lies in a byte workspace at ``offset_bytes``."""
    raw = workspace[offset_bytes : offset_bytes + spec.span_bytes]
    return raw.view(torch_dtype(spec.dtype)).as_strided(spec.shape, spec.strides)


def allocator(spec: TensorSpec, device: torch.device) -> Callable[[], Tensor]:
    """Makes uninitialised tensors of ``spec``."""
    return strided_allocator(spec.shape, spec.strides, torch_dtype(spec.dtype), device)


def strided_allocator(
    shape: tuple[int, ...], strides: tuple[int, ...], dtype: torch.dtype, device: torch.device
) -> Callable[[], Tensor]:
    """Makes uninitialised tensors; on the current GPU by the call of PyTorch's own compiled programs, which is quicker
    than the public one."""
    quick = getattr(torch._C._dynamo.guards, "_empty_strided_cuda", None) if device.type == "cuda" else None
    if quick is None:
        return partial(torch.empty_strided, shape, strides, dtype=dtype, device=device)
    return partial(quick, shape, strides, dtype)


def activate(y: Tensor, activation: Activation) -> Tensor:
    """``activation`` of every element, in memory of its own; ``y`` itself where there is none."""
    return _ACTIVATED[activation](y) if activation in _ACTIVATED else y


def activate_(y: Tensor, activation: Activation) -> Tensor:
    """Apply ``activation`` to ``y`` in place; nothing is allocated.

    >>> activate_(torch.tensor([-4.0, 3.0]), Activation.HARDSWISH).tolist()
    [-0.0, 3.0]
    """
    return _IN_PLACE[activation](y) if activation in _IN_PLACE else y
