"""Addresses of arrays that belong to any library."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.utils.dlpack import from_dlpack

from convwright.core.tensor_spec import TensorSpec
from convwright.errors import BadInput
from convwright.tensors import torch_dtype

Packed = tuple[tuple[int, ...], tuple[int, ...]]


def address_of(array: Any) -> int:
    """Where an array's memory begins; an address is its own, None is 0."""
    if type(array) is int:
        return array
    return 0 if array is None else _tensor(array).data_ptr()


def checked_address(
    array: Any, spec: TensorSpec, role: str, device: torch.device, *, packed: Packed | None = None
) -> int:
    """The same of an array that has to be what ``spec`` says, or ``packed`` into that shape and those strides."""
    if array is None or type(array) is int:
        return address_of(array)
    tensor = _tensor(array)
    if tensor.device != device:
        raise BadInput(f"`{role}` must be on {device}, as the plan is, got an array on {tensor.device}")
    if tensor.dtype != torch_dtype(spec.dtype):
        raise BadInput(f"`{role}` must be {spec.dtype}, as the plan's problem says, got {tensor.dtype}")
    wanted = packed or (spec.shape, spec.strides)
    if tuple(tensor.shape) != wanted[0] or _moving(tensor.shape, tensor.stride()) != _moving(*wanted):
        raise BadInput(
            f"`{role}` must have the sizes {wanted[0]} and the strides {wanted[1]}, "
            f"got {tuple(tensor.shape)} and {tensor.stride()}"
        )
    return tensor.data_ptr()


def _moving(shape: tuple[int, ...], strides: tuple[int, ...]) -> list[int]:
    """The strides that matter: a dimension of size 1 may have any."""
    return [stride for size, stride in zip(shape, strides, strict=True) if size > 1]


def _tensor(array: Any) -> Tensor:
    if isinstance(array, Tensor):
        return array
    if hasattr(array, "__cuda_array_interface__"):
        return torch.as_tensor(array, device="cuda")
    if hasattr(array, "__dlpack__"):
        return from_dlpack(array)
    raise BadInput(
        "an operand must be an address, a tensor, or an array with __dlpack__ or __cuda_array_interface__, "
        f"got {type(array).__name__}"
    )
