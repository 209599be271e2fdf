"""The kinds of data on which errors are checked, as operands of a problem."""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum
from math import log2, sqrt

import torch
from torch import Tensor

from convwright.core.direction import Role
from convwright.core.dtype import DType
from convwright.core.problem import ConvProblem
from convwright.core.tensor_spec import TensorSpec
from convwright.measuring.checking import drawing
from convwright.tensors import spoil_, torch_dtype


class Kind(StrEnum):
    """What the numbers are like. All but INTEGERS are normally distributed before anything is done to them."""

    NORMAL = "normal"
    POSITIVE = "positive"
    CHANNEL_SCALED = "channel-scaled"
    LARGE = "large"
    INFINITY = "infinity"
    NAN = "nan"
    INTEGERS = "integers"


FINITE_KINDS = (Kind.NORMAL, Kind.POSITIVE, Kind.CHANNEL_SCALED, Kind.LARGE)
NON_FINITE_KINDS = (Kind.INFINITY, Kind.NAN)
ERROR_KINDS = FINITE_KINDS + NON_FINITE_KINDS

# What a dtype cannot hold is not looked at: int8 has integers, and fp8_e4m3 a NaN but no infinity.
_WITHOUT = {
    DType.INT8: frozenset({Kind.CHANNEL_SCALED, *NON_FINITE_KINDS}),
    DType.FP8_E4M3: frozenset({Kind.INFINITY}),
}

# The first operand is scaled by 2^e and the second by 2^-e: e leaves the first about 2^2.5 below overflow in fp16,
# and elsewhere enough room that sums over an image stay in range, as a Fourier transform needs; 2^-e is still normal.
_LARGE_EXPONENT = {
    DType.FP64: 1000, DType.FP32: 110, DType.BF16: 110, DType.FP16: 11, DType.FP8_E4M3: 6, DType.FP8_E5M2: 13,
}  # fmt: skip
# Channels are scaled from 10^-d to 10^d.
_CHANNEL_DECADES = {DType.FP8_E4M3: 1}

# The spread of operands of int8 is at most so many, and for long sums less, so that results are of this order: within
# what the output holds, for most of them, and so that each deviation by one shows.
_MOST_SPREAD = 32.0
_INTEGER_RESULT = {DType.FP32: 2.0**14, DType.FP16: 2.0**10, DType.BF16: 2.0**10, DType.INT8: 2.0**6}

# Elements of NaN ahead of an operand and behind it; a multiple of every alignment.
_MARGIN = 4096

# Integers up to here are exact in the dtype.
_EXACT_INTEGERS = {
    DType.FP64: 2.0**53, DType.FP32: 2.0**24, DType.BF16: 2.0**8, DType.FP16: 2.0**11, DType.INT8: 2.0**7,
}  # fmt: skip


def kinds_of(problem: ConvProblem, among: Iterable[Kind | str] = ERROR_KINDS) -> tuple[Kind, ...]:
    """Those kinds of data that operands of ``problem`` can hold.

    >>> [str(kind) for kind in kinds_of(ConvProblem.parse("ic8ih9oc16kh3 dt:int8"))]
    ['normal', 'positive', 'large']
    """
    return tuple(Kind(kind) for kind in among if kind not in _WITHOUT.get(problem.dtype, ()))


def operands(
    problem: ConvProblem, kind: Kind | str, device: torch.device | str, *, seed: int = 0
) -> dict[Role, Tensor]:
    """All operands of ``problem`` but what is computed, by role, with the strides that the problem says.

    The first of the two that are multiplied carries what is special about ``kind``; the second is scaled so that
    results are of order 1. Equal seeds give equal data on equal devices.

    >>> problem = ConvProblem.parse("ic8ih9oc16kh3 ep:bias")
    >>> {str(role): tuple(tensor.shape) for role, tensor in operands(problem, "normal", "cpu").items()}
    {'x': (1, 8, 9, 9), 'w': (16, 8, 3, 3), 'bias': (16,)}
    """
    kind = Kind(kind)
    generator = torch.Generator(device).manual_seed(seed)
    made: dict[Role, Tensor] = {}
    for role, spec in problem.operands.items():
        if role not in problem.outputs:
            values = _integers(problem, spec, generator) if kind is Kind.INTEGERS else _normal(spec, generator)
            shaped = _whole(values, problem, role, kind) if problem.dtype is DType.INT8 else None
            made[role] = _placed(_shaped(values, problem, role, kind) if shaped is None else shaped, spec)
    return made


def _normal(spec: TensorSpec, generator: torch.Generator) -> Tensor:
    drawn_in = torch.float64 if spec.dtype is DType.FP64 else torch.float32
    return drawing.normal(spec.shape, generator, drawn_in)


def _integers(problem: ConvProblem, spec: TensorSpec, generator: torch.Generator) -> Tensor:
    """±1 and ±2, so few that the sum of all |products| stays exact in the dtype, in whatever order it is taken."""
    share = sqrt(_EXACT_INTEGERS[problem.output.dtype] / (16 * max(problem.reduction, 1)))
    values = torch.randint(1, 3, spec.shape, generator=generator, device=generator.device).float()
    luck = torch.rand(spec.shape, generator=generator, device=generator.device)
    sign = torch.rand(spec.shape, generator=generator, device=generator.device)
    return torch.where(luck < min(share, 0.5), torch.where(sign < 0.5, -values, values), torch.zeros_like(values))


def _shaped(values: Tensor, problem: ConvProblem, role: Role, kind: Kind) -> Tensor:
    """What makes normal values the operand ``role`` of ``kind``. All factors but the channels' are powers of two."""
    first, second = problem.direction.operands
    if kind is Kind.INTEGERS or role not in (first, second):
        return values
    if kind is Kind.LARGE:
        exponent = _LARGE_EXPONENT[problem.dtype]
        return values * 2.0 ** (exponent if role is first else -exponent)
    if role is second:
        return values * 2.0 ** -round(log2(max(problem.reduction, 1)) / 2)
    if kind is Kind.POSITIVE:
        return values.relu()
    if kind is Kind.CHANNEL_SCALED:
        return values * _channel_factors(values, _CHANNEL_DECADES.get(problem.dtype, 3))
    if kind in NON_FINITE_KINDS and values.numel():
        values[_used_position(problem, role)] = torch.inf if kind is Kind.INFINITY else torch.nan
    return values


def _whole(values: Tensor, problem: ConvProblem, role: Role, kind: Kind) -> Tensor:
    """Integers of ``kind``, also for what is added: sums of them are exact in fp32 as long as they are short enough."""
    if kind is Kind.INTEGERS:
        return values
    spread = min(_MOST_SPREAD, sqrt(_INTEGER_RESULT[problem.output.dtype] / sqrt(max(problem.reduction, 1))))
    if kind is Kind.LARGE:
        spread = 2 * _MOST_SPREAD
    if kind is Kind.POSITIVE and role is problem.direction.operands[0]:
        values = values.relu()
    return (values * spread).round().clamp(-127, 127)


def _channel_factors(values: Tensor, decades: int) -> Tensor:
    """From 10^-decades to 10^decades over the channels, small and large side by side."""
    channels = values.shape[1]
    factors = torch.logspace(-decades, decades, channels, device=values.device, dtype=values.dtype)
    order = torch.arange(channels, device=values.device)
    mixed = torch.where(order % 2 == 0, order // 2, channels - 1 - order // 2)
    return factors[mixed].reshape(1, channels, *[1] * (values.dim() - 2))


def _used_position(problem: ConvProblem, role: Role) -> tuple[int, ...]:
    """A position in the middle that meets at least one filter tap: stride and dilation may leave others unread."""
    if role is Role.DY:
        return tuple(size // 2 for size in problem.y.shape)
    read = (
        axis.out // 2 * axis.stride + axis.taps // 2 * axis.dilation - axis.pad[0]
        for axis in problem.axes
    )  # fmt: skip
    inside = (min(max(position, 0), axis.size - 1) for position, axis in zip(read, problem.axes, strict=True))
    return (problem.n // 2, problem.c // 2, *inside)


def _placed(values: Tensor, spec: TensorSpec) -> Tensor:
    """The values in memory laid out as the spec says, NaN around them and in any gaps.

    Some libraries' kernels read beyond their operands and multiply what they find by zero: here that shows.
    """
    span = spec.span_bytes // spec.dtype.nbytes
    buffer = spoil_(torch.empty(span + 2 * _MARGIN, dtype=torch_dtype(spec.dtype), device=values.device))
    tensor = buffer.as_strided(spec.shape, spec.strides, _MARGIN)
    # An expanded dimension has stride 0: it holds one value however long it is.
    stored = tuple(slice(0, 1) if stride == 0 else slice(None) for stride in spec.strides)
    tensor[stored].copy_(values[stored].to(torch_dtype(spec.dtype)))
    return tensor
