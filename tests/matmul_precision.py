"""PyTorch's precision of matrix products for a while, and then inherited again where it was."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch


@contextmanager
def matmul_precision(precision: str) -> Iterator[None]:
    before, inherited = torch.get_float32_matmul_precision(), torch.backends.cuda.matmul.fp32_precision
    torch.set_float32_matmul_precision(precision)
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)
        torch.backends.cuda.matmul.fp32_precision = inherited
