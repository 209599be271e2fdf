"""Operands of a problem with each kind of data for error checks."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from math import log2, sqrt
from typing import Any

import torch
from torch import Tensor

from convwright.core.direction import Role
from convwright.core.dtype import DType
from convwright.core.kinds.problem import Problem
from convwright.core.problem import ConvProblem
from convwright.core.tensor_spec import TensorSpec
from convwright.measuring.checking import drawing, linear, resizing
from convwright.measuring.checking.kind import CHANNEL_DECADES, LARGE_EXPONENT
from convwright.measuring.checking.kind import ERROR_KINDS as ERROR_KINDS
from convwright.measuring.checking.kind import FINITE_KINDS as FINITE_KINDS
from convwright.measuring.checking.kind import NON_FINITE_KINDS as NON_FINITE_KINDS
from convwright.measuring.checking.kind import Kind as Kind
from convwright.measuring.checking.placing import channel_factors, placed
from convwright.measuring.checking.plain_data import plain_values

# Kinds that a dtype cannot represent: int8 has only integers, and fp8_e4m3 a NaN but no infinity.
_WITHOUT = {
    DType.INT8: frozenset({Kind.CHANNEL_SCALED, *NON_FINITE_KINDS}),
    DType.FP8_E4M3: frozenset({Kind.INFINITY}),
}

# Smaller ranges of channel scales.
_CHANNEL_DECADES = {DType.FP8_E4M3: 1}

# The spread of int8 operands is at most this, and less for long sums, so that results are of this size: most fit into
# the output, and each deviation by one shows.
_MOST_SPREAD = 32.0
_INTEGER_RESULT = {DType.FP32: 2.0**14, DType.FP16: 2.0**10, DType.BF16: 2.0**10, DType.INT8: 2.0**6}

# The largest integers up to which all are exact in the dtype.
_EXACT_INTEGERS = {
    DType.FP64: 2.0**53, DType.FP32: 2.0**24, DType.BF16: 2.0**8, DType.FP16: 2.0**11, DType.INT8: 2.0**7,
}  # fmt: skip


def kinds_of(problem: Problem, among: Iterable[Kind | str] = ERROR_KINDS) -> tuple[Kind, ...]:
    """The kinds of data that operands of ``problem`` can represent.

    >>> [str(kind) for kind in kinds_of(ConvProblem.parse("ic8ih9oc16kh3 dt:int8"))]
    ['normal', 'positive', 'large']
    """
    return tuple(Kind(kind) for kind in among if kind not in _WITHOUT.get(problem.dtype, ()))


def operands(problem: Problem, kind: Kind | str, device: torch.device | str, *, seed: int = 0) -> dict[Any, Tensor]:
    """All operands of ``problem`` except outputs, by role, with the problem's strides.

    For a convolution, the first of the two multiplied operands has the properties of ``kind``; the second is scaled so
    that results are of order 1. Equal seeds give equal data on equal devices.

    >>> problem = ConvProblem.parse("ic8ih9oc16kh3 ep:bias")
    >>> {str(role): tuple(tensor.shape) for role, tensor in operands(problem, "normal", "cpu").items()}
    {'x': (1, 8, 9, 9), 'w': (16, 8, 3, 3), 'bias': (16,)}
    """
    kind, values = Kind(kind), _VALUES[problem.kind]
    generator = torch.Generator(device).manual_seed(seed)
    return {
        role: placed(values(problem, role, spec, kind, generator), spec)
        for role, spec in problem.operands.items()
        if role not in problem.outputs
    }


def _factor(problem: ConvProblem, role: Role, spec: TensorSpec, kind: Kind, generator: torch.Generator) -> Tensor:
    """Values of an operand of a convolution."""
    values = _integers(problem, spec, generator) if kind is Kind.INTEGERS else _normal(spec, generator)
    return (_whole if problem.dtype is DType.INT8 else _shaped)(values, problem, role, kind)


_VALUES: Mapping[str, Callable[..., Tensor]] = {
    "conv": _factor,
    "linear": linear.values,
    "copy": plain_values,
    "pointwise": plain_values,
    "pool": plain_values,
    "resize": resizing.values,
}


def _normal(spec: TensorSpec, generator: torch.Generator) -> Tensor:
    drawn_in = torch.float64 if spec.dtype is DType.FP64 else torch.float32
    return drawing.normal(spec.shape, generator, drawn_in)


def _integers(problem: ConvProblem, spec: TensorSpec, generator: torch.Generator) -> Tensor:
    """±1 and ±2, so few that the sum of all |products| is exact in the dtype, in any order."""
    share = sqrt(_EXACT_INTEGERS[problem.output.dtype] / (16 * max(problem.reduction, 1)))
    values = torch.randint(1, 3, spec.shape, generator=generator, device=generator.device).float()
    luck = torch.rand(spec.shape, generator=generator, device=generator.device)
    sign = torch.rand(spec.shape, generator=generator, device=generator.device)
    return torch.where(luck < min(share, 0.5), torch.where(sign < 0.5, -values, values), torch.zeros_like(values))


def _shaped(values: Tensor, problem: ConvProblem, role: Role, kind: Kind) -> Tensor:
    """Turn normal values into the operand ``role`` of ``kind``. All factors except channels' are powers of two."""
    first, second = problem.direction.operands
    if kind is Kind.INTEGERS or role not in (first, second):
        return values
    if kind is Kind.LARGE:
        exponent = LARGE_EXPONENT[problem.dtype]
        return values * 2.0 ** (exponent if role is first else -exponent)
    if role is second:
        return values * 2.0 ** -round(log2(max(problem.reduction, 1)) / 2)
    if kind is Kind.POSITIVE:
        return values.relu()
    if kind is Kind.CHANNEL_SCALED:
        return values * channel_factors(values, _CHANNEL_DECADES.get(problem.dtype, CHANNEL_DECADES))
    if kind in NON_FINITE_KINDS and values.numel():
        values[_used_position(problem, role)] = torch.inf if kind is Kind.INFINITY else torch.nan
    return values


def _whole(values: Tensor, problem: ConvProblem, role: Role, kind: Kind) -> Tensor:
    """Integers of ``kind``, also for residual and bias: sums of them are exact in fp32 if they are short enough."""
    if kind is Kind.INTEGERS:
        return values
    spread = min(_MOST_SPREAD, sqrt(_INTEGER_RESULT[problem.output.dtype] / sqrt(max(problem.reduction, 1))))
    if kind is Kind.LARGE:
        spread = 2 * _MOST_SPREAD
    if kind is Kind.POSITIVE and role is problem.direction.operands[0]:
        values = values.relu()
    return (values * spread).round().clamp(-127, 127)


def _used_position(problem: ConvProblem, role: Role) -> tuple[int, ...]:
    """A position near the middle that at least one filter tap reads: stride and dilation may skip others."""
    if role is Role.DY:
        return tuple(size // 2 for size in problem.y.shape)
    read = (
        axis.out // 2 * axis.stride + axis.taps // 2 * axis.dilation - axis.pad[0]
        for axis in problem.axes
    )  # fmt: skip
    inside = (min(max(position, 0), axis.size - 1) for position, axis in zip(read, problem.axes, strict=True))
    return (problem.n // 2, problem.c // 2, *inside)
