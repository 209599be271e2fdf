"""The one place that says how much error a candidate may have."""

from __future__ import annotations

from collections.abc import Iterable
from math import isfinite

from convwright.core.dtype import Arithmetic, DType
from convwright.core.finding import KindError

_UNIT = {Arithmetic.TF32: 2.0**-11, Arithmetic.FP64: 2.0**-53}


def arithmetic_roundoff(arithmetic: Arithmetic, dtype: DType) -> float:
    """The largest relative error of one input or output as ``arithmetic`` sees it."""
    return max(_UNIT.get(arithmetic, 0.0), dtype.roundoff)


def scaled_bound(arithmetic: Arithmetic, dtype: DType, reduction: int) -> float:
    """The largest scaled error, in units of the dtype's roundoff, that a correct candidate can show.

    Both inputs and the output are rounded once; sums of ``reduction`` terms in fp32 (fp64 for fp64) add at most one
    accumulator roundoff each.
    """
    accumulator = 2.0**-53 if dtype is DType.FP64 else 2.0**-24
    split = 2.0**-21 if arithmetic is Arithmetic.TF32X3 else 0.0
    absolute = 3 * arithmetic_roundoff(arithmetic, dtype) + (reduction + 3) * accumulator + split
    return absolute / dtype.roundoff


def error_objection(errors: Iterable[KindError], baseline: Iterable[KindError], max_error: float) -> str | None:
    """Why errors are too large beside PyTorch's on the same data, or None where they are not.

    A candidate whose error is below one roundoff needs no comparison: no result in that dtype can be better.
    """
    torch = {error.kind: error for error in baseline}
    for error in errors:
        reference = torch.get(error.kind)
        if reference is None:
            return f"was never compared with PyTorch on {error.kind} data"
        pairs = (
            ("relative L2 error", error.relative_l2, reference.relative_l2),
            ("largest scaled error", error.scaled_max, reference.scaled_max),
        )
        for name, ours, theirs in pairs:
            if not isfinite(ours):
                return f"gives wrong infinities or NaNs on {error.kind} data"
            if ours > max_error * theirs and not (name.startswith("largest") and ours <= 1.0):
                return f"{name} on {error.kind} data is {ours:.2g}, PyTorch's is {theirs:.2g} ({max_error:g}x allowed)"
    return None
