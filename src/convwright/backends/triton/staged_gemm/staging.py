"""How an input lies once it is staged: pixel by pixel, with its borders, each number as one or two of fp16."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from convwright.backends.triton.gemm.algorithms import Algorithm
from convwright.backends.triton.gemm.tiles import Tile
from convwright.backends.triton.operands import group_sizes
from convwright.backends.triton.staging.algorithms import numbers_of
from convwright.backends.triton.staging.extents import NUMBER_BYTES, SCALE_BYTES, aligned, extents, padded
from convwright.core.problem import ConvProblem


@dataclass(frozen=True, slots=True)
class Staging:
    """``images`` of ``depth`` x ``height`` x ``width`` pixels, all that some tap reads; a pixel has ``pitch`` channels
    in each of its ``groups``, each as so many numbers, and ``block`` channels share a scale."""

    images: int
    depth: int
    height: int
    width: int
    groups: int
    pitch: int
    block: int
    each: int

    @classmethod
    def of(cls, problem: ConvProblem, algorithm: Algorithm, tile: Tile) -> Staging:
        pitch = padded(group_sizes(problem)[0], tile.bk)
        return cls(problem.n, *extents(problem), problem.groups, pitch, tile.bk, numbers_of(algorithm))

    @property
    def pixels(self) -> int:
        return self.images * self.depth * self.height * self.width

    @property
    def numbers(self) -> int:
        return self.each * self.pixels * self.groups * self.pitch

    @property
    def blocks(self) -> int:
        """Of channels that share a scale."""
        return self.groups * self.pitch // self.block

    @property
    def nbytes(self) -> int:
        """Numbers, and behind them scales; what follows is aligned."""
        return aligned(self.numbers * NUMBER_BYTES + self.pixels * self.blocks * SCALE_BYTES)

    @property
    def constants(self) -> dict[str, int]:
        """What kernels are told that write it or read it."""
        return {
            "N": self.images, "DP": self.depth, "HP": self.height, "WP": self.width, "G": self.groups,
            "PITCH": self.pitch, "EACH": self.each, "SCALES_AT": self.numbers * NUMBER_BYTES // SCALE_BYTES,
        }  # fmt: skip


def packed_bytes(problem: ConvProblem, algorithm: Algorithm, tile: Tile) -> int:
    """What a packed weight takes, with a scale for each of its output channels."""
    row = prod(problem.taps) * padded(problem.w.shape[1], tile.bk)
    return problem.k * (numbers_of(algorithm) * row * NUMBER_BYTES + SCALE_BYTES)
