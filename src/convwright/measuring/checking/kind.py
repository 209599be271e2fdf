"""The kinds of data for error checks."""

from __future__ import annotations

from enum import StrEnum

from convwright.core.dtype import DType


class Kind(StrEnum):
    """The kind of numbers. All except INTEGERS start from a normal distribution."""

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

# The first operand is scaled by 2^e, and the second factor of a product by 2^-e. With this e the first is about 2^2.5
# below overflow in fp16; in other types sums over an image stay in range, as a Fourier transform needs. 2^-e is still a
# normal number.
LARGE_EXPONENT = {
    DType.FP64: 1000, DType.FP32: 110, DType.BF16: 110, DType.FP16: 11, DType.FP8_E4M3: 6, DType.FP8_E5M2: 13,
}  # fmt: skip
# Channels are scaled from 10^-d to 10^d.
CHANNEL_DECADES = 3
