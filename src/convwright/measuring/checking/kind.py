"""The kinds of data on which errors are checked."""

from __future__ import annotations

from enum import StrEnum

from convwright.core.dtype import DType


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

# The first operand is scaled by 2^e, and in a product the second by 2^-e: e leaves the first about 2^2.5 below overflow
# in fp16, and elsewhere enough room that sums over an image stay in range, as a Fourier transform needs; 2^-e is still
# normal.
LARGE_EXPONENT = {
    DType.FP64: 1000, DType.FP32: 110, DType.BF16: 110, DType.FP16: 11, DType.FP8_E4M3: 6, DType.FP8_E5M2: 13,
}  # fmt: skip
# Channels are scaled from 10^-d to 10^d.
CHANNEL_DECADES = 3
