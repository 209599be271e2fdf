"""The one place that says how much error a candidate may have."""

from __future__ import annotations

from collections.abc import Iterable
from math import isfinite, sqrt

from convwright.core.candidate import Candidate
from convwright.core.direction import Direction
from convwright.core.dtype import Arithmetic, DType
from convwright.core.epilogue import Activation
from convwright.core.finding import KindError
from convwright.core.policy import Policy
from convwright.core.problem import ConvProblem

# The kinds of data that hold an infinity or a NaN.
NON_FINITE_KINDS = ("infinity", "nan")
_SMOOTH = frozenset({Activation.SILU, Activation.GELU, Activation.HARDSWISH})
_UNIT = {Arithmetic.TF32: 2.0**-11, Arithmetic.SCALED_FP16: 2.0**-11, Arithmetic.FP64: 2.0**-53}
# Tensor cores of sm_89 and sm_90 add 32 products of fp8 at a time, and keep 13 bits behind the point of each such sum.
_FP8_AT_A_TIME, _FP8_SUM = 32, 2.0**-13
# They round sums that are kept in fp16 after 8 products at the least. So are sums of so many products, which are added
# in fp32: to all of a longer sum it would show too much.
_FP16_AT_A_TIME, MOST_IN_FP16 = 8, 64


def arithmetic_roundoff(arithmetic: Arithmetic, dtype: DType) -> float:
    """The largest relative error of one input or output as ``arithmetic`` sees it."""
    return max(_UNIT.get(arithmetic, 0.0), dtype.roundoff)


def scaled_bound(
    arithmetic: Arithmetic,
    dtype: DType,
    reduction: int,
    activation: Activation = Activation.NONE,
    *,
    roundings: int = 0,
) -> float:
    """The largest scaled error, in units of the dtype's roundoff, that a correct candidate can show.

    Both inputs and the output are rounded once; sums of ``reduction`` terms in fp32 (fp64 for fp64) add at most one
    accumulator roundoff each. Sums of fp8, and those that are kept in fp16, have fewer bits, and add one roundoff of
    these for some terms at a time. A smooth activation is some steps of arithmetic more; what it is given may be
    rounded. ``roundings`` are those of an epilogue that other work than the convolution's computes.
    """
    accumulator = 2.0**-53 if dtype is DType.FP64 else 2.0**-24
    split = 2.0**-21 if arithmetic.products > 1 else 0.0
    rounded = 3 * arithmetic_roundoff(arithmetic, dtype) + roundings * dtype.roundoff
    fewer = _in_fewer_bits(arithmetic, reduction)
    absolute = rounded + (reduction + 3) * accumulator + split + fewer
    smooth = dtype.roundoff + 4 * accumulator if activation in _SMOOTH else 0.0
    return (activation.slope * absolute + smooth) / dtype.roundoff


def _in_fewer_bits(arithmetic: Arithmetic, reduction: int) -> float:
    """What sums that are kept in fewer bits than fp32 has add to the error."""
    if arithmetic is Arithmetic.FP8_ACC32:
        return (reduction / _FP8_AT_A_TIME + 1) * _FP8_SUM
    if arithmetic is Arithmetic.FP16_ACC16:
        return (min(reduction, MOST_IN_FP16) / _FP16_AT_A_TIME + 1) * DType.FP16.roundoff
    return 0.0


def rare_roundings(problem: ConvProblem) -> int:
    """How often a value is rounded on its way through an epilogue that no kernel fuses: scaled once, added to an output
    twice; a gradient's activation has a derivative, which is rounded and multiplied by."""
    epilogue = problem.epilogue
    derived = problem.direction is not Direction.FORWARD and epilogue.activation in _SMOOTH
    return epilogue.scale + 2 * epilogue.accumulate + 3 * derived


def exact_bound(problem: ConvProblem) -> float:
    """The largest scaled error, in units of the output's roundoff, of a correct candidate for int8.

    Sums in int32 are exact. Stored as fp32 they are rounded once, else to fp32 before; a scale and what is added are
    applied in fp32, rounded once more for each. So a result differs from float64 by that or is wrong: it is scaled by
    the result itself.
    """
    epilogue, stored = problem.epilogue, problem.output.dtype
    steps = epilogue.scale + epilogue.residual + epilogue.bias + epilogue.accumulate
    roundings = steps + (steps > 0 or stored is not DType.FP32) + 4 * (epilogue.activation in _SMOOTH)
    return epilogue.activation.slope * (1 + roundings * 2.0**-24 / stored.roundoff)


def noise(problem: ConvProblem) -> tuple[float, float]:
    """Errors so small that comparing them says nothing: relative L2, and scaled in units of roundoff.

    No result in a dtype is surely better than one roundoff; in fp64 the reference itself is rounded as often as the
    sums are long.
    """
    terms = 2 * sqrt(problem.reduction) if problem.dtype is DType.FP64 else 1.0
    return terms * problem.output.dtype.roundoff, terms


def objection_to_errors(
    candidate: Candidate, errors: Iterable[KindError], baseline: Iterable[KindError] | None, policy: Policy
) -> str | None:
    """Why a candidate's errors are too large: beside PyTorch's on the same data, or by themselves for want of these."""
    if baseline is None:
        return absolute_objection(candidate.problem, candidate.arithmetic, errors, policy)
    return error_objection(candidate.problem, errors, baseline, policy)


def error_objection(
    problem: ConvProblem, errors: Iterable[KindError], baseline: Iterable[KindError], policy: Policy
) -> str | None:
    """Why errors are too large beside PyTorch's on the same data, or None where they are not."""
    torch = {error.kind: error for error in baseline}
    for error in errors:
        if policy.finite_inputs and error.kind in NON_FINITE_KINDS:
            continue
        if error.kind not in torch:
            return f"was never compared with PyTorch on {error.kind} data"
        reference = torch[error.kind]
        figures = ("relative L2 error", "largest scaled error"), noise(problem)
        pairs = (error.relative_l2, reference.relative_l2), (error.scaled_max, reference.scaled_max)
        for name, least, (ours, theirs) in zip(*figures, pairs, strict=True):
            if not isfinite(theirs):
                continue  # PyTorch's own call goes wrong on this data
            if not isfinite(ours):
                return _infinite(error)
            if ours > max(policy.max_error * theirs, least):
                allowed = f"{policy.max_error:g}x allowed"
                return f"{name} on {error.kind} data is {ours:.2g}, PyTorch's is {theirs:.2g} ({allowed})"
    return None


def absolute_objection(
    problem: ConvProblem, arithmetic: Arithmetic, errors: Iterable[KindError], policy: Policy
) -> str | None:
    """Why errors are too large by themselves, for want of PyTorch's to compare them with."""
    if problem.dtype is DType.INT8:
        bound = exact_bound(problem)
    else:
        forward = problem.direction is Direction.FORWARD
        bound = scaled_bound(
            arithmetic, problem.output.dtype, problem.reduction,
            problem.epilogue.activation if forward else Activation.NONE, roundings=rare_roundings(problem),
        )  # fmt: skip
    for error in errors:
        if policy.finite_inputs and error.kind in NON_FINITE_KINDS:
            continue
        if not isfinite(error.relative_l2) or not isfinite(error.scaled_max):
            return _infinite(error)
        if error.scaled_max > bound:
            return (
                f"largest scaled error on {error.kind} data is {error.scaled_max:.2g}, at most {bound:.2g} is explained"
            )
    return None


def _infinite(error: KindError) -> str:
    """What an infinite error says: beside a finite one in the norm, that the sum of no products is not 0."""
    if isfinite(error.relative_l2):
        return f"is not 0 on {error.kind} data where nothing is summed"
    return f"gives wrong infinities or NaNs on {error.kind} data"
