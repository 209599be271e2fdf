"""How an image of few channels lies once it is staged: row by row, its channels filled up to a power of two, so that
all that the taps of one row read lies side by side."""

from __future__ import annotations

from dataclasses import dataclass

from convwright.backends.triton.gemm.algorithms import Algorithm
from convwright.backends.triton.operands import pair, power_of_two
from convwright.backends.triton.staging.algorithms import numbers_of
from convwright.backends.triton.staging.extents import NUMBER_BYTES, SCALE_BYTES, aligned, extents, padded
from convwright.core.dtype import DType
from convwright.core.problem import ConvProblem

_LEAST_CHANNELS = 4  # of a pixel: of fewer too few bytes lie side by side
_LEAST_STEP = 16  # that tensor cores take
_WHOLE_LOADS = 8  # numbers that one instruction loads, of which a row has a multiple


@dataclass(frozen=True, slots=True)
class Folding:
    """``rows`` of ``width`` pixels of ``channels``; ``taps`` side by side are a step of ``step`` numbers.

    ``whole`` steps are read, with what lies behind the taps in a row, where whole loads would find the numbers of a
    step but for its end. Twice as many of half the length kept shared memory busy for 83 % of the 85 µs that a first
    layer of 7x7 took (H200, under a profiler).
    """

    images: int
    depth: int
    height: int
    width: int
    channels: int
    taps: int
    each: int
    scaled: bool
    whole: bool

    @classmethod
    def of(cls, problem: ConvProblem, algorithm: Algorithm) -> Folding:
        channels = max(power_of_two(problem.c), _LEAST_CHANNELS)
        deep, high, wide = extents(problem)
        taps, axis, scaled = pair(problem.taps, 1)[1], problem.axes[-1], problem.dtype is DType.FP32
        whole = axis.stride * channels % _WHOLE_LOADS == 0 and taps * channels % _WHOLE_LOADS != 0
        if whole:
            wide = max(wide, (axis.out - 1) * axis.stride + _step(taps, channels) // channels)
        wide = padded(wide, max(_WHOLE_LOADS // channels, 1))
        return cls(problem.n, deep, high, wide, channels, taps, numbers_of(algorithm), scaled, whole)

    @property
    def rows(self) -> int:
        return self.images * self.depth * self.height

    @property
    def step(self) -> int:
        return _step(self.taps, self.channels)

    @property
    def numbers(self) -> int:
        """Of one part."""
        return self.rows * self.width * self.channels

    @property
    def nbytes(self) -> int:
        """Numbers, and behind them a scale for each row; what follows is aligned."""
        return aligned(self.each * self.numbers * NUMBER_BYTES + self.rows * SCALE_BYTES * self.scaled)

    @property
    def constants(self) -> dict[str, int | bool]:
        """What kernels are told that write it or read it."""
        return {
            "N": self.images, "DP": self.depth, "HP": self.height, "WP": self.width, "PITCH": self.channels,
            "EACH": self.each, "SCALED": self.scaled,
            "SCALES_AT": self.each * self.numbers * NUMBER_BYTES // SCALE_BYTES,
        }  # fmt: skip

    def packed_bytes(self, rows: int, outputs: int) -> int:
        """What a weight of so many rows of taps takes, with a scale for each output channel."""
        return outputs * (self.each * rows * self.step * NUMBER_BYTES + SCALE_BYTES)


def _step(taps: int, channels: int) -> int:
    return max(power_of_two(taps * channels), _LEAST_STEP)
