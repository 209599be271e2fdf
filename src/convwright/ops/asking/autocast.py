"""What autocast does to a convolution: its operands are cast, and inside nothing is."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import torch
from torch import Tensor

_USUAL = ("cpu", "cuda")
_Result = TypeVar("_Result")
Operands = tuple[Tensor, Tensor, Tensor | None]


def autocasting(x: Tensor) -> bool:
    """False on devices that have no autocast, of which PyTorch does not let one ask."""
    kind = x.device.type
    return (kind in _USUAL or torch.amp.is_autocast_available(kind)) and torch.is_autocast_enabled(kind)


def lowered_dtype(tensor: Tensor) -> torch.dtype:
    """The dtype that autocast computes convolutions in; float64 stays as it is."""
    return tensor.dtype if tensor.dtype is torch.float64 else torch.get_autocast_dtype(tensor.device.type)


def cast(x: Tensor, w: Tensor, bias: Tensor | None) -> Operands:
    """Input, weight and bias in the dtype that autocast computes convolutions in."""
    return x.to(lowered_dtype(x)), w.to(lowered_dtype(w)), None if bias is None else bias.to(lowered_dtype(bias))


def uncast(x: Tensor, call: Callable[[], _Result]) -> _Result:
    """``call`` with autocast off, by its switch alone, which takes 1 µs where PyTorch's context takes 3.6."""
    kind = x.device.type
    before = torch.is_autocast_enabled(kind)
    torch.set_autocast_enabled(kind, False)
    try:
        return call()
    finally:
        torch.set_autocast_enabled(kind, before)


def lowering(run: Callable[..., Tensor], dtype: torch.dtype, own: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """``run``, which was made for operands of ``dtype``, for those that autocast casts to it; ``own`` for others."""

    def lowered(
        x: Tensor,
        w: Tensor,
        bias: Tensor | None = None,
        residual: Tensor | None = None,
        out: Tensor | None = None,
    ) -> Tensor:
        if lowered_dtype(x) is not dtype:
            return own(x, w, bias, residual, out)
        operands = cast(x, w, bias)
        return uncast(x, lambda: run(*operands, residual, out))

    return lowered
