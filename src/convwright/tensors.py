"""Torch tensors of core's specs: the one seam between data about tensors and tensors."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor
from torch.nn import functional as F

from convwright import torch_api
from convwright.core.dtype import IN_PYTORCH, DType
from convwright.core.epilogue import Activation
from convwright.core.tensor_spec import TensorSpec, same_order
from convwright.errors import BadInput
from convwright.graph.memory_plan import ALIGNMENT_BYTES

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

_ACTIVATED: dict[Activation, Callable[[Tensor], Tensor]] = {
    Activation.RELU: torch.relu,
    Activation.SILU: F.silu,
    Activation.GELU: F.gelu,
    Activation.HARDSWISH: F.hardswish,
}
_IN_PLACE: dict[Activation, Callable[[Tensor], Tensor]] = {
    Activation.RELU: torch.relu_,
    Activation.SILU: torch_api.nn_functions.silu_,
    Activation.GELU: torch_api.nn_functions.gelu_,
    Activation.HARDSWISH: torch_api.nn_functions.hardswish_,
}


def torch_dtype(dtype: DType) -> torch.dtype:
    return _TORCH[dtype]


def core_dtype(dtype: torch.dtype, among: tuple[DType, ...] = tuple(DType)) -> DType:
    """The storage type of a tensor; what is none of these, as complex and wide integers are, is refused in words."""
    known = _CORE.get(dtype)
    if known not in among:
        raise BadInput(f"convolutions are computed in {', '.join(among)}, got {dtype}")
    return known


def is_like(tensor: Tensor | None, spec: TensorSpec) -> bool:
    """Whether there is a tensor, with the shape and the type of ``spec``."""
    return tensor is not None and (tuple(tensor.shape), core_dtype(tensor.dtype)) == (spec.shape, spec.dtype)


def spec_of(tensor: Tensor) -> TensorSpec:
    """What a problem needs to know of ``tensor``."""
    address = torch_api.address_of(tensor)
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


def laid_(made: Tensor, spec: TensorSpec) -> Tensor:
    """A result with the strides of the spec, along single elements, too: itself where it lies so, or else a copy."""
    if made.stride() == spec.strides:
        return made
    return made.as_strided_(spec.shape, spec.strides) if lies_as(made, spec) else empty(spec, made.device).copy_(made)


def unviewed(tensor: Tensor) -> Tensor:
    """The same memory as a tensor that is no view: one that was made where autograd did not look could not be changed
    in place where it does.

    >>> torch_api.is_view(unviewed(torch.zeros(1, 3).squeeze(0)))
    False
    """
    if not torch_api.is_view(tensor):
        return tensor
    return torch.empty(0, dtype=tensor.dtype, device=tensor.device).set_(
        tensor.untyped_storage(), tensor.storage_offset(), tensor.shape, tensor.stride()
    )


def spoil_(tensor: Tensor) -> Tensor:
    """Fill a tensor with what nothing should be made of: NaN, and in int8, which has none, its least number."""
    return tensor.fill_(torch.nan if tensor.is_floating_point() else -128)


def aligned_bytes(nbytes: int, device: torch.device) -> Tensor:
    """Memory that begins at a multiple of the alignment, which on a CPU PyTorch's own allocations need not."""
    raw = torch.empty(nbytes + ALIGNMENT_BYTES, dtype=torch.uint8, device=device)
    start = -raw.data_ptr() % ALIGNMENT_BYTES
    return raw[start : start + nbytes]


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
    quick = torch_api.empty_strided_cuda if device.type == "cuda" else None
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
