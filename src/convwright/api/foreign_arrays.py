"""Addresses of arrays of any library."""

from __future__ import annotations

from typing import Any, NamedTuple, Self

import torch
from torch import Tensor
from torch.utils.dlpack import from_dlpack

from convwright.core.tensor_spec import ALIGNMENTS, TensorSpec, same_order
from convwright.errors import BadInput
from convwright.graph.memory_plan import ALIGNMENT_BYTES
from convwright.tensors import torch_dtype


class OperandForm(NamedTuple):
    """The required form of a plan's operand: strides, alignment in bytes, and the words that say where they come from.

    Without strides any layout is accepted.
    """

    shape: tuple[int, ...]
    strides: tuple[int, ...] | None
    dtype: torch.dtype
    alignment: int
    said: str

    @classmethod
    def posed(cls, spec: TensorSpec) -> Self:
        return cls(spec.shape, spec.strides, torch_dtype(spec.dtype), spec.alignment, "the plan's problem says")

    @classmethod
    def packed(cls, weight: Tensor) -> Self:
        """That of a weight which the plan has packed; of where it begins nothing is asked."""
        return cls(tuple(weight.shape), weight.stride(), weight.dtype, 1, "`prepare` packs it")


def address_of(array: Any) -> int:
    """The address of an array's memory. An integer is an address already, None is 0."""
    if type(array) is int:
        return array
    return 0 if array is None else tensor_of(array).data_ptr()


def checked_address(array: Any, form: OperandForm, role: str, device: torch.device) -> int:
    """The address of an array, after checking it against ``form``."""
    if array is None or type(array) is int:
        return address_of(array)
    tensor = tensor_of(array, device)
    check_form(tensor, form, role, device)
    return tensor.data_ptr()


def check_form(tensor: Tensor, form: OperandForm, role: str, device: torch.device) -> None:
    """Refuse a tensor whose form differs from the plan's."""
    if not isinstance(tensor, Tensor):
        raise BadInput(f"`{role}` must be a tensor, got {type(tensor).__name__}")
    if tensor.device != device:
        raise BadInput(f"`{role}` must be on {device}, as the plan is, got an array on {tensor.device}")
    if tensor.dtype != form.dtype:
        raise BadInput(f"`{role}` must be {form.dtype}, as {form.said}, got {tensor.dtype}")
    if tuple(tensor.shape) != form.shape:
        raise BadInput(f"`{role}` must have the sizes {form.shape}, as {form.said}, got {tuple(tensor.shape)}")
    if form.strides is not None and not _same_strides(form.shape, form.strides, tensor.stride()):
        raise BadInput(f"`{role}` must have the strides {form.strides}, as {form.said}, got {tensor.stride()}")
    if form.alignment > 1 and tensor.data_ptr() % form.alignment:
        raise BadInput(
            f"`{role}` must begin at a multiple of {form.alignment} bytes, as {form.said}, "
            f"got one at {tensor.data_ptr():#x}"
        )


def check_workspace(workspace: Tensor, nbytes: int, device: torch.device) -> None:
    """Refuse a workspace that is too small, on another device, or not aligned."""
    if not isinstance(workspace, Tensor):
        raise BadInput(f"`workspace` must be a tensor, got {type(workspace).__name__}")
    if workspace.device != device or workspace.nbytes < nbytes:
        raise BadInput(
            f"`workspace` must have {nbytes:,} bytes on {device}, got {workspace.nbytes:,} on {workspace.device}"
        )
    if workspace.is_cuda and workspace.data_ptr() % ALIGNMENT_BYTES:
        raise BadInput(
            f"`workspace` must begin at a multiple of {ALIGNMENT_BYTES} bytes, got one at {workspace.data_ptr():#x}"
        )


def look(tensor: Tensor) -> tuple[object, ...]:
    """What one that fits has in common with others that do: of as many tensors as look alike, one need be checked."""
    try:
        at = tensor.data_ptr() % max(ALIGNMENTS) if tensor.layout is torch.strided else 0
        return tensor.shape, tensor.stride(), tensor.dtype, tensor.device, at
    except AttributeError:
        raise BadInput(f"a plan is called with tensors, got {type(tensor).__name__}") from None


def _same_strides(shape: tuple[int, ...], first: tuple[int, ...], second: tuple[int, ...]) -> bool:
    """Whether both strides reach the same elements. An empty tensor may have any strides."""
    return 0 in shape or same_order(shape, first, second)


def tensor_of(array: Any, device: torch.device | str = "cuda") -> Tensor:
    """The array as a tensor in the same memory. An array without a device must be on ``device``."""
    if isinstance(array, Tensor):
        return array
    if hasattr(array, "__dlpack__"):
        return from_dlpack(array)
    if hasattr(array, "__cuda_array_interface__"):
        tensor = torch.as_tensor(array, device=device)
        if tensor.numel() and tensor.data_ptr() != array.__cuda_array_interface__["data"][0]:
            raise BadInput(f"an array must be on {tensor.device}, got one on another device, which PyTorch copied")
        return tensor
    raise BadInput(
        "an operand must be an address, a tensor, or an array with __dlpack__ or __cuda_array_interface__, "
        f"got {type(array).__name__}"
    )
