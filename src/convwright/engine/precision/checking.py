"""Check an engine's outputs: engine and model are both compared with float64."""

from __future__ import annotations

from collections.abc import Sequence
from math import isfinite

import torch
from torch import Tensor

from convwright.tensors import core_dtype


def relative_l2(outputs: Sequence[Tensor], exact: Sequence[Tensor]) -> tuple[float, ...]:
    """The relative L2 error of each output."""
    return tuple(_error(made.double(), right) for made, right in zip(outputs, exact, strict=True))


def objection(
    outputs: Sequence[Tensor], own: Sequence[Tensor], exact: Sequence[Tensor], max_error: float
) -> str | None:
    """The first output whose error exceeds ``max_error`` times the error of the model's ``own``, as a sentence, or
    None. Errors below one roundoff are allowed, and so is any error where the model itself fails."""
    pairs = zip(relative_l2(outputs, exact), relative_l2(own, exact), own, strict=True)
    for place, (ours, theirs, tensor) in enumerate(pairs):
        if isfinite(theirs) and not ours <= max(max_error * theirs, core_dtype(tensor.dtype).roundoff):
            return f"output {place} has a relative L2 error of {ours:.2g}, the model itself {theirs:.2g}"
    return None


def _error(made: Tensor, right: Tensor) -> float:
    norm = torch.linalg.vector_norm(right)
    off = torch.linalg.vector_norm(made - right)
    return float(off / norm) if norm else float(off)
