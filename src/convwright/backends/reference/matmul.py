"""Matrix products in the arithmetic that a candidate is labelled with, whatever PyTorch's flags allow at the call."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

_C: Any = torch._C
_FP32, _EXACT = (torch.float32, torch.complex64), ("none", "ieee")


def multiply(a: Tensor, b: Tensor, out: Tensor) -> Tensor:
    """``out = a @ b`` for stacks of matrices."""
    if not _is_loosened(a) and not _C._get_cublas_allow_fp16_accumulation():
        return torch.bmm(a, b, out=out)
    with _native(a):
        return torch.bmm(a, b, out=out)


def multiply_add(a: Tensor, b: Tensor, out: Tensor) -> Tensor:
    """``out += a @ b`` for stacks of matrices."""
    if not _is_loosened(a) and not _C._get_cublas_allow_fp16_accumulation():
        return torch.baddbmm(out, a, b, out=out)
    with _native(a):
        return torch.baddbmm(out, a, b, out=out)


def _is_loosened(operand: Tensor) -> bool:
    """Whether a user lets products of fp32 be computed in less."""
    if operand.dtype not in _FP32:
        return False
    return _C._get_fp32_precision_getter(_library(operand), "matmul") not in _EXACT


def _library(operand: Tensor) -> str:
    return "cuda" if operand.is_cuda else "mkldnn"


@contextmanager
def _native(operand: Tensor) -> Iterator[None]:
    """No TF32 or BF16 for fp32, no fp16 sums for fp16. Flags are touched only where a user has loosened them."""
    library = _library(operand)
    precision = _C._get_fp32_precision_getter(library, "matmul")
    loosened = operand.dtype in _FP32 and precision not in _EXACT
    half_sums = _C._get_cublas_allow_fp16_accumulation()
    try:
        if loosened:
            _C._set_fp32_precision_setter(library, "matmul", "ieee")
        if half_sums:
            _C._set_cublas_allow_fp16_accumulation(False)
        yield
    finally:
        if loosened:
            _C._set_fp32_precision_setter(library, "matmul", precision)
        if half_sums:
            _C._set_cublas_allow_fp16_accumulation(half_sums)
