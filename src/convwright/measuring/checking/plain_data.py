"""Data for problems without matrix products: each operand by itself is of the kind."""

from __future__ import annotations

from math import inf

import torch
from torch import Tensor

from convwright.core.dtype import DType
from convwright.core.kinds.pointwise import PointwiseProblem
from convwright.core.kinds.problem import Problem
from convwright.core.tensor_spec import TensorSpec
from convwright.measuring.checking import drawing
from convwright.measuring.checking.kind import CHANNEL_DECADES, LARGE_EXPONENT, NON_FINITE_KINDS, Kind
from convwright.measuring.checking.placing import channel_factors

_SPREAD = 48.0  # of 8-bit integers
# Norms sum the squares of a row's elements, which must stay in the range of fp32.
_LARGE_EXPONENT_OF_ROWS = 48


def plain_values(problem: Problem, role: str, spec: TensorSpec, kind: Kind, generator: torch.Generator) -> Tensor:
    """Values of the operand ``role``. Only the first operand is large, so that it meets others of usual size. Every
    operand holds an infinity or NaN, except a single number."""
    if kind is Kind.INTEGERS:
        return torch.randint(-2, 3, spec.shape, generator=generator, device=generator.device).float()
    values = drawing.normal(spec.shape, generator, torch.float64 if spec.dtype is DType.FP64 else torch.float32)
    if spec.dtype is DType.INT8:
        return (values * _SPREAD).round().clamp(-127, 127)
    if kind is Kind.POSITIVE:
        return values.abs()
    if kind is Kind.LARGE and role == next(iter(problem.operands)):
        most = _LARGE_EXPONENT_OF_ROWS if isinstance(problem, PointwiseProblem) and problem.row else inf
        return values * 2.0 ** min(LARGE_EXPONENT[spec.dtype], most)
    if kind is Kind.CHANNEL_SCALED and len(spec.shape) > 1 and spec.shape[1] > 1:
        return values * channel_factors(values, CHANNEL_DECADES)
    if kind in NON_FINITE_KINDS and values.numel() > 1:
        values[middle(spec.shape)] = torch.inf if kind is Kind.INFINITY else torch.nan
    return values


def middle(shape: tuple[int, ...]) -> tuple[int, ...]:
    """The position of the one infinity or NaN."""
    return tuple(size // 2 for size in shape)
