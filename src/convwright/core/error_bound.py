"""The largest error of a correct convolution in some arithmetic, from its roundings."""

from __future__ import annotations

from typing import TYPE_CHECKING

from convwright.core.direction import Direction
from convwright.core.dtype import Arithmetic, DType
from convwright.core.epilogue import Activation

if TYPE_CHECKING:
    from convwright.core.problem import ConvProblem

_SMOOTH = frozenset({Activation.SILU, Activation.GELU, Activation.HARDSWISH})
_UNIT = {Arithmetic.TF32: 2.0**-11, Arithmetic.SCALED_FP16: 2.0**-11, Arithmetic.FP64: 2.0**-53}
# Tensor cores of sm_89 and sm_90 add 32 products of fp8 at a time, and keep 13 bits after the point of each such sum.
_FP8_AT_A_TIME, _FP8_SUM = 32, 2.0**-13
# Tensor cores round fp16 sums at least after each 8 products. Sums of up to 64 such products are then added in fp32:
# longer fp16 sums would err too much.
_FP16_AT_A_TIME, MOST_IN_FP16 = 8, 64


def bound_of(problem: ConvProblem, arithmetic: Arithmetic) -> float:
    """The largest scaled error of a correct candidate for ``problem``, in units of the output's roundoff."""
    if problem.dtype is DType.INT8:
        return exact_bound(problem)
    forward = problem.direction is Direction.FORWARD
    return scaled_bound(
        arithmetic, problem.output.dtype, problem.reduction,
        problem.epilogue.activation if forward else Activation.NONE, roundings=rare_roundings(problem),
    )  # fmt: skip


def arithmetic_roundoff(arithmetic: Arithmetic, dtype: DType) -> float:
    """The largest relative rounding error of an input or output in ``arithmetic``."""
    return max(_UNIT.get(arithmetic, 0.0), dtype.roundoff)


def scaled_bound(
    arithmetic: Arithmetic,
    dtype: DType,
    reduction: int,
    activation: Activation = Activation.NONE,
    *,
    roundings: int = 0,
) -> float:
    """The largest scaled error of a correct candidate, in units of the dtype's roundoff.

    Both inputs and the output are rounded once. Sums of ``reduction`` terms in fp32 (fp64 for fp64) add at most one
    roundoff of that type each. Sums of fp8, and fp16 sums, have fewer bits and add one roundoff of these for some terms
    at a time. A smooth activation adds some steps, and its input may be rounded. ``roundings`` are those of an epilogue
    that is computed separately.
    """
    accumulator = 2.0**-53 if dtype is DType.FP64 else 2.0**-24
    split = 2.0**-21 if arithmetic.products > 1 else 0.0
    rounded = 3 * arithmetic_roundoff(arithmetic, dtype) + roundings * dtype.roundoff
    fewer = _in_fewer_bits(arithmetic, reduction)
    absolute = rounded + (reduction + 3) * accumulator + split + fewer
    smooth = dtype.roundoff + 4 * accumulator if activation in _SMOOTH else 0.0
    return (activation.slope * absolute + smooth) / dtype.roundoff


def _in_fewer_bits(arithmetic: Arithmetic, reduction: int) -> float:
    """The additional error of sums with fewer bits than fp32."""
    if arithmetic is Arithmetic.FP8_ACC32:
        return (reduction / _FP8_AT_A_TIME + 1) * _FP8_SUM
    if arithmetic is Arithmetic.FP16_ACC16:
        return (min(reduction, MOST_IN_FP16) / _FP16_AT_A_TIME + 1) * DType.FP16.roundoff
    return 0.0


def rare_roundings(problem: ConvProblem) -> int:
    """The number of roundings in an unfused epilogue: one for a scale, two for a sum with the output, two for an
    activation's derivative."""
    epilogue = problem.epilogue
    derived = problem.direction is not Direction.FORWARD and epilogue.activation in _SMOOTH
    return epilogue.scale + 2 * epilogue.accumulate + 3 * derived


def exact_bound(problem: ConvProblem) -> float:
    """The largest scaled error of a correct candidate for int8, in units of the output's roundoff.

    Sums in int32 are exact. They are rounded once if stored as fp32, otherwise to fp32 first; a scale and each addition
    in fp32 round once more. A larger difference from float64 means a wrong result, so errors are scaled by the result
    itself.
    """
    epilogue, stored = problem.epilogue, problem.output.dtype
    steps = epilogue.scale + epilogue.residual + epilogue.bias + epilogue.accumulate
    roundings = steps + (steps > 0 or stored is not DType.FP32) + 4 * (epilogue.activation in _SMOOTH)
    return epilogue.activation.slope * (1 + roundings * 2.0**-24 / stored.roundoff)
