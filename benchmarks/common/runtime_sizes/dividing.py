"""Divisions by numbers that are known at run time, which GPUs have no instruction for: as the compiler writes them out,
or, where the host has found a reciprocal, by one multiplication."""
# mypy: disable-error-code="no-untyped-def,no-untyped-call,untyped-decorator"

from __future__ import annotations

import triton
import triton.language as tl


def reciprocal(number: int) -> tuple[int, int]:
    """``times`` and ``shift``, with which (value * times >> 32) >> shift is value // number, for all values below 2^31.

    >>> times, shift = reciprocal(7)
    >>> all((value * times >> 32) >> shift == value // 7 for value in (0, 6, 7, 48, 49, 2**31 - 2, 2**31 - 1))
    True
    """
    assert number > 1, "the quotient by 1 is the value itself"
    shift = (number - 1).bit_length() - 1
    return -(-(1 << shift + 32) // number), shift


@triton.jit
def divided(value, by, times, shift, RUN: tl.constexpr, EQUAL: tl.constexpr = False):
    """Quotient and remainder; ``times`` is None if there is no reciprocal. RUN divides ``by``. Each RUN numbers of
    ``value`` follow one another from a multiple of RUN, or are the same with EQUAL; the results carry that as hints."""
    if times is None:
        quotient = value // by
        rest = value % by
    else:
        high = tl.umulhi(value.to(tl.uint32), times.to(tl.uint32)) >> shift.to(tl.uint32)
        if RUN > 1:
            high = tl.max_constancy(high, [RUN])  # here, since what is said of a cast that does nothing is lost
        quotient = high.to(tl.int32)
        rest = value - quotient * by
        if RUN > 1 and not EQUAL:
            rest = tl.max_contiguous(tl.multiple_of(rest, [RUN]), [RUN])
    return quotient, rest
