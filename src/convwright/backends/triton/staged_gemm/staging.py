"""How an input lies once it is staged: pixel by pixel, with its borders, each number as two of fp16."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from convwright.backends.triton.operands import depth_constants, group_sizes, window_constants
from convwright.core.problem import ConvProblem

_PART_BYTES, _SCALE_BYTES = 2, 4
_ALIGNED = 256


@dataclass(frozen=True, slots=True)
class Staging:
    """``images`` of ``depth`` x ``height`` x ``width`` pixels, all that some tap reads; a pixel has ``pitch`` channels
    in each of its ``groups``, ``block`` of which share a scale."""

    images: int
    depth: int
    height: int
    width: int
    groups: int
    pitch: int
    block: int

    @classmethod
    def of(cls, problem: ConvProblem, block: int) -> Staging:
        told = window_constants(problem) | depth_constants(problem)

        def read(out: str, stride: str, taps: str, dilation: str) -> int:
            return (told[out] - 1) * told[stride] + (told[taps] - 1) * told[dilation] + 1

        return cls(
            problem.n, read("Z", "STRIDE_D", "T", "DILATION_D"), read("P", "STRIDE_H", "R", "DILATION_H"),
            read("Q", "STRIDE_W", "S", "DILATION_W"), problem.groups, padded(group_sizes(problem)[0], block), block,
        )  # fmt: skip

    @property
    def pixels(self) -> int:
        return self.images * self.depth * self.height * self.width

    @property
    def numbers(self) -> int:
        """Both parts of all channels."""
        return 2 * self.pixels * self.groups * self.pitch

    @property
    def blocks(self) -> int:
        """Of channels that share a scale."""
        return self.groups * self.pitch // self.block

    @property
    def nbytes(self) -> int:
        """Parts, and behind them scales; what follows is aligned."""
        exact = self.numbers * _PART_BYTES + self.pixels * self.blocks * _SCALE_BYTES
        return padded(exact, _ALIGNED)

    @property
    def constants(self) -> dict[str, int]:
        """What kernels are told that write it or read it."""
        return {
            "N": self.images, "DP": self.depth, "HP": self.height, "WP": self.width, "G": self.groups,
            "PITCH": self.pitch, "SCALES_AT": self.numbers * _PART_BYTES // _SCALE_BYTES,
        }  # fmt: skip


def packed_bytes(problem: ConvProblem, block: int) -> int:
    """What both parts of a weight take, and a scale for each of its output channels."""
    row = prod(problem.taps) * padded(problem.w.shape[1], block)
    return problem.k * (2 * row * _PART_BYTES + _SCALE_BYTES)


def padded(count: int, multiple: int) -> int:
    return -(-count // multiple) * multiple
