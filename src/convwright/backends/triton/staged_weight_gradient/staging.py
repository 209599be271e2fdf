"""How the input and the output's gradient lie once they are staged for a weight's gradient, in one workspace."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache

from convwright.backends.triton.gemm.algorithms import Algorithm
from convwright.backends.triton.operands import (
    depth_constants,
    group_sizes,
    offsets_are_wide,
    pixel_count,
    plane_constants,
    power_of_two,
    window_constants,
)
from convwright.backends.triton.staging.algorithms import numbers_of
from convwright.backends.triton.staging.extents import NUMBER_BYTES, SCALE_BYTES, aligned, extents, padded
from convwright.core.problem import ConvProblem

BLOCK = 64  # of channels
PIXELS_AT_ONCE = 128
_MOST_READ_BEHIND = 256 * 2 * NUMBER_BYTES
# Programs that look for the largest number of channels, each of some of them among as many pixels: enough to keep all
# of a device busy, and few for those that read again what they found.
_SEARCHERS, _MOST_CHUNKS = 512, 128


@dataclass(frozen=True, slots=True)
class Lying:
    """Where an operand's numbers lie, its channels being ``channels`` in a group: sizes and strides of images, planes,
    rows and columns; which of them are staged, ``deep`` by ``high`` by ``wide`` from ``front``, ``top`` and ``left``
    ahead of the first on; whether it lies in planes, and needs offsets of 64 bits."""

    channels: int
    n: int
    d: int
    h: int
    w: int
    stride_n: int
    stride_c: int
    stride_d: int
    stride_h: int
    stride_w: int
    deep: int
    high: int
    wide: int
    front: int
    top: int
    left: int
    in_planes: bool
    far: bool


@dataclass(frozen=True, slots=True)
class Staged:
    """One operand, as kernels are told of it: how it lies, and as how many ``pixels`` and ``channels`` it is staged. Of
    each channel all pixels share a power of two, so that sums over pixels can be taken."""

    lying: Lying
    pixels: int
    channels: int
    each: int
    chunks: int
    begins: int
    # What follows from these and kernels are told of: in fields of its own, since compiled kernels are known by fields.
    numbers_at: int = field(init=False)  # in numbers from the workspace's start
    scales_at: int = field(init=False)  # in numbers of fp32; behind scales lie the largest numbers of each chunk
    searchers: int = field(init=False)  # programs that look for the largest numbers, in one chunk of some channels each
    stagers: int = field(init=False)  # programs that stage it
    chunks_at_once: int = field(init=False)  # a power of two of at least as many chunks as there are

    def __post_init__(self) -> None:
        told = {
            "numbers_at": self.begins // NUMBER_BYTES,
            "scales_at": (self.begins + aligned(self.numbers * NUMBER_BYTES)) // SCALE_BYTES,
            "searchers": self.chunks * self.channels // BLOCK,
            "stagers": -(-self.pixels // PIXELS_AT_ONCE) * self.channels // BLOCK,
            "chunks_at_once": power_of_two(self.chunks),
        }
        for name, value in told.items():
            object.__setattr__(self, name, value)

    @property
    def numbers(self) -> int:
        return self.each * self.pixels * self.channels

    @property
    def ends(self) -> int:
        return aligned((self.scales_at + (1 + self.chunks) * self.channels) * SCALE_BYTES)


@lru_cache(maxsize=256)
def staged_input(problem: ConvProblem, algorithm: Algorithm) -> Staged:
    """What some tap reads of it."""
    told = window_constants(problem) | depth_constants(problem) | plane_constants(problem)
    deep, high, wide = extents(problem)
    lying = Lying(
        channels=group_sizes(problem)[0], n=problem.n, d=told["D"], h=told["H"], w=told["W"],
        stride_n=told["X_N"], stride_c=told["X_C"], stride_d=told["X_D"], stride_h=told["X_H"], stride_w=told["X_W"],
        deep=deep, high=high, wide=wide, front=told["FRONT"], top=told["TOP"], left=told["LEFT"],
        in_planes=bool(told["X_PLANES"]), far=offsets_are_wide(problem.x),
    )  # fmt: skip
    return _staged(lying, problem.groups, problem.n * deep * high * wide, algorithm, 0)


@lru_cache(maxsize=256)
def staged_gradient(problem: ConvProblem, algorithm: Algorithm) -> Staged:
    """All of it, behind the input, and with zeros behind the last pixel."""
    told = window_constants(problem) | depth_constants(problem) | plane_constants(problem)
    deep, high, wide = told["Z"], told["P"], told["Q"]
    lying = Lying(
        channels=group_sizes(problem)[1], n=problem.n, d=deep, h=high, w=wide,
        stride_n=told["Y_N"], stride_c=told["Y_K"], stride_d=told["Y_Z"], stride_h=told["Y_P"], stride_w=told["Y_Q"],
        deep=deep, high=high, wide=wide, front=0, top=0, left=0,
        in_planes=bool(told["Y_PLANES"]), far=offsets_are_wide(problem.y),
    )  # fmt: skip
    begins = staged_input(problem, algorithm).ends
    return _staged(lying, problem.groups, padded(pixel_count(problem), PIXELS_AT_ONCE), algorithm, begins)


def staged_bytes(problem: ConvProblem, algorithm: Algorithm) -> int:
    """Of both, and of what the widest tile reads behind the last channel."""
    return staged_gradient(problem, algorithm).ends + _MOST_READ_BEHIND


def _staged(lying: Lying, groups: int, pixels: int, algorithm: Algorithm, begins: int) -> Staged:
    channels = groups * padded(lying.channels, BLOCK)
    most = min(_MOST_CHUNKS, max(_SEARCHERS * BLOCK // channels, 1))
    blocks = -(-lying.n * lying.d * lying.h * lying.w // PIXELS_AT_ONCE)
    chunks = -(-blocks // -(-blocks // most))  # of as many blocks each
    return Staged(lying, pixels, channels, numbers_of(algorithm), chunks, begins)
