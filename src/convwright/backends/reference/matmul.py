"""Matrix products in the arithmetic that a candidate is labelled with, whatever PyTorch's flags allow at the call."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor

from convwright import torch_api

_FP32, _EXACT = (torch.float32, torch.complex64), ("none", "ieee")


def multiply(a: Tensor, b: Tensor, out: Tensor, *, tf32: bool = False) -> Tensor:
    """``out = a @ b`` for stacks of matrices; of fp32 on a GPU in TF32 where that is asked for."""
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
    """The same product with a result that lies row by row: outᵀ = bᵀ aᵀ.

    On a CPU PyTorch writes 16-bit results column by column 100 to 3,000 times slower.
    """
    is_by_columns = out.stride(-1) != 1 and out.stride(-2) == 1
    return (b.mT, a.mT, out.mT) if is_by_columns else (a, b, out)


def _differs(operand: Tensor, tf32: bool = False) -> bool:
    """Whether PyTorch's flags, as a user has set them, ask for another arithmetic."""
    return _precision_to_set(operand, tf32) is not None or bool(torch_api.fp16_sums_allowed())


def _precision_to_set(operand: Tensor, tf32: bool) -> str | None:
    """What products of fp32 have to be computed in, where that is not what holds."""
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
    """No BF16 for fp32, TF32 only where it is asked for, no fp16 sums for fp16. Only flags that differ are touched."""
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
            # PyTorch tells what holds, not whether it was set here or inherited: what "none" gives back was inherited.
            torch_api.set_fp32_precision(library, "matmul", "none")
            if torch_api.fp32_precision(library, "matmul") != precision:
                torch_api.set_fp32_precision(library, "matmul", precision)
        if half_sums:
            torch_api.set_fp16_sums_allowed(half_sums)
