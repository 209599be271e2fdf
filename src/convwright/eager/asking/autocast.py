"""Autocast for convolutions: cast the operands, then compute with autocast off."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import torch
from torch import Tensor

_USUAL = ("cpu", "cuda")
_Result = TypeVar("_Result")
Operands = tuple[Tensor, Tensor, Tensor | None]


def autocasting(x: Tensor) -> bool:
    """Whether autocast is on. PyTorch raises an error for devices without autocast; here they give False."""
    kind = x.device.type
    return (kind in _USUAL or torch.amp.is_autocast_available(kind)) and torch.is_autocast_enabled(kind)


def lowered_dtype(tensor: Tensor) -> torch.dtype:
    """The dtype in which autocast computes convolutions; float64 stays as it is."""
    return tensor.dtype if tensor.dtype is torch.float64 else torch.get_autocast_dtype(tensor.device.type)


def cast(x: Tensor, w: Tensor, bias: Tensor | None) -> Operands:
    """Input, weight and bias in the dtype in which autocast computes convolutions."""
    return x.to(lowered_dtype(x)), w.to(lowered_dtype(w)), None if bias is None else bias.to(lowered_dtype(bias))


def uncast(x: Tensor, call: Callable[[], _Result]) -> _Result:
    """``call`` with autocast off. Setting the switch alone takes 1 µs; PyTorch's context takes 3.6."""
    kind = x.device.type
    before = torch.is_autocast_enabled(kind)
    torch.set_autocast_enabled(kind, False)
    try:
        return call()
    finally:
        torch.set_autocast_enabled(kind, before)


def lowering(run: Callable[..., Tensor], given: Operands, anew: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """``run`` after the casts that autocast makes for operands like ``given``. If autocast has another dtype by now,
    ``anew`` runs instead."""
    kind = given[0].device.type
    dtype_of, set_enabled = torch.get_autocast_dtype, torch.set_autocast_enabled
    dtype = dtype_of(kind)
    is_cast = any(tensor is not None and tensor.dtype is not torch.float64 for tensor in given)
    x_dtype, w_dtype, bias_dtype = (
        None if tensor is None or lowered_dtype(tensor) is tensor.dtype else lowered_dtype(tensor) for tensor in given
    )

    def lowered(
        x: Tensor,
        w: Tensor,
        bias: Tensor | None = None,
        residual: Tensor | None = None,
        out: Tensor | None = None,
    ) -> Tensor:
        if is_cast and dtype_of(kind) is not dtype:
            return anew(x, w, bias, residual, out)
        if x_dtype is not None:
            x = x.to(x_dtype)
        if w_dtype is not None:
            w = w.to(w_dtype)
        if bias is not None and bias_dtype is not None:
            bias = bias.to(bias_dtype)
        set_enabled(kind, False)
        try:
            return run(x, w, bias, residual, out)
        finally:
            set_enabled(kind, True)

    return lowered
