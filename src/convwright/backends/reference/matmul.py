"""Matrix products in the arithmetic of the candidate, regardless of PyTorch's flags at the call."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor

from convwright import torch_api

_FP32, _EXACT = (torch.float32, torch.complex64), ("none", "ieee")


def multiply(a: Tensor, b: Tensor, out: Tensor, *, tf32: bool = False) -> Tensor:
    """``out = a @ b`` for stacks of matrices. ``tf32`` allows TF32 for fp32 on a GPU."""
    a, b, result = _by_rows(a, b, out)
    if not _differs(a, tf32):
        torch.bmm(a, b, out=result)
        return out
    with _as_labelled(a, tf32):
        torch.bmm(a, b, out=result)
    return out


def multiply_add(a: Tensor, b: Tensor, out: Tensor) -> Tensor:
    """``out += a @ b`` for stacks of matrices."""
    a, b, result = _by_rows(a, b, out)
    if not _differs(a):
        torch.baddbmm(result, a, b, out=result)
        return out
    with _as_labelled(a):
        torch.baddbmm(result, a, b, out=result)
    return out


def _by_rows(a: Tensor, b: Tensor, out: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The same product with a row-major result: outᵀ = bᵀ aᵀ.

    On a CPU PyTorch writes 16-bit column-major results 100 to 3,000 times slower.
    """
    is_by_columns = out.stride(-1) != 1 and out.stride(-2) == 1
    return (b.mT, a.mT, out.mT) if is_by_columns else (a, b, out)


def _differs(operand: Tensor, tf32: bool = False) -> bool:
    """Whether PyTorch's flags, as the user has set them, allow another arithmetic."""
    return _precision_to_set(operand, tf32) is not None or bool(torch_api.fp16_sums_allowed())


def _precision_to_set(operand: Tensor, tf32: bool) -> str | None:
    """The precision to set for products of fp32; None if the current one is right."""
    if operand.dtype not in _FP32:
        return None
    precision = torch_api.fp32_precision(_library(operand), "matmul")
    if tf32:
        return None if precision == "tf32" else "tf32"
    return None if precision in _EXACT else "ieee"


def _library(operand: Tensor) -> str:
    return "cuda" if operand.is_cuda else "mkldnn"


@contextmanager
def _as_labelled(operand: Tensor, tf32: bool = False) -> Iterator[None]:
    """No BF16 for fp32, TF32 only on request, no fp16 sums for fp16. Only flags that differ are changed."""
    library, wanted = _library(operand), _precision_to_set(operand, tf32)
    precision = torch_api.fp32_precision(library, "matmul")
    half_sums = torch_api.fp16_sums_allowed()
    try:
        if wanted is not None:
            torch_api.set_fp32_precision(library, "matmul", wanted)
        if half_sums:
            torch_api.set_fp16_sums_allowed(False)
        yield
    finally:
        if wanted is not None:
            # PyTorch reports the effective value, not whether it was set or inherited. "none" restores an inherited
            # one.
            torch_api.set_fp32_precision(library, "matmul", "none")
            if torch_api.fp32_precision(library, "matmul") != precision:
                torch_api.set_fp32_precision(library, "matmul", precision)
        if half_sums:
            torch_api.set_fp16_sums_allowed(half_sums)
