"""Matrix products in the arithmetic that a candidate is labelled with, whatever PyTorch's flags allow at the call."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

_C: Any = torch._C


def multiply(a: Tensor, b: Tensor, out: Tensor) -> Tensor:
    """``out = a @ b`` for stacks of matrices."""
    with _native(a):
        return torch.bmm(a, b, out=out)


def multiply_add(a: Tensor, b: Tensor, out: Tensor) -> Tensor:
    """``out += a @ b`` for stacks of matrices."""
    with _native(a):
        return torch.baddbmm(out, a, b, out=out)


@contextmanager
def _native(operand: Tensor) -> Iterator[None]:
    """No TF32 or BF16 for fp32, no fp16 sums for fp16. Flags are touched only where a user has loosened them."""
    library = "cuda" if operand.is_cuda else "mkldnn"
    precision = _C._get_fp32_precision_getter(library, "matmul")
    half_sums = _C._get_cublas_allow_fp16_accumulation()
    loosened = operand.dtype in (torch.float32, torch.complex64) and precision not in ("none", "ieee")
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
