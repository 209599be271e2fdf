"""How the input and the output's gradient lie once they are staged for a weight's gradient, in one workspace."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from convwright.backends.triton.gemm.algorithms import Algorithm
from convwright.backends.triton.operands import depth_constants, group_sizes, pixel_count, window_constants
from convwright.backends.triton.staging.algorithms import numbers_of
from convwright.backends.triton.staging.extents import NUMBER_BYTES, SCALE_BYTES, aligned, extents, padded
from convwright.core.problem import ConvProblem
from convwright.core.tensor_spec import TensorSpec

BLOCK = 64  # of channels
PIXELS_AT_ONCE = 128
_MOST_READ_BEHIND = 256 * 2 * NUMBER_BYTES
# Programs that look for the largest number of channels, each of some of them among as many pixels: enough to keep all
# of a device busy, and few for those that read again what they found.
_SEARCHERS, _MOST_CHUNKS, _LEAST_OF_A_CHUNK = 512, 128, 256


@dataclass(frozen=True, slots=True)
class Staged:
    """One operand. Of each channel all pixels share a power of two, so that sums over pixels can be taken."""

    pixels: int
    channels: int
    each: int
    chunks: int
    begins: int

    @property
    def numbers(self) -> int:
        return self.each * self.pixels * self.channels

    @property
    def scales_at(self) -> int:
        """In numbers of fp32 from the workspace's start; behind scales lie the largest numbers of each chunk."""
        return (self.begins + aligned(self.numbers * NUMBER_BYTES)) // SCALE_BYTES

    @property
    def ends(self) -> int:
        return aligned((self.scales_at + (1 + self.chunks) * self.channels) * SCALE_BYTES)

    @property
    def constants(self) -> dict[str, int]:
        """What kernels are told that write it."""
        return {
            "BEGINS": self.begins // NUMBER_BYTES, "SCALES_AT": self.scales_at, "PIXELS": self.pixels,
            "PITCH": self.channels, "EACH": self.each, "CHUNKS": self.chunks,
        }  # fmt: skip


def staged_input(problem: ConvProblem, algorithm: Algorithm) -> Staged:
    pixels, channels = problem.n * prod(extents(problem)), group_sizes(problem)[0]
    return _staged(problem.x, problem.groups * padded(channels, BLOCK), pixels, algorithm, 0)


def staged_gradient(problem: ConvProblem, algorithm: Algorithm) -> Staged:
    """Behind the input, and with zeros behind the last pixel."""
    pixels, channels = padded(pixel_count(problem), PIXELS_AT_ONCE), group_sizes(problem)[1]
    begins = staged_input(problem, algorithm).ends
    return _staged(problem.y, problem.groups * padded(channels, BLOCK), pixels, algorithm, begins)


def staged_bytes(problem: ConvProblem, algorithm: Algorithm) -> int:
    """Of both, and of what the widest tile reads behind the last channel."""
    return staged_gradient(problem, algorithm).ends + _MOST_READ_BEHIND


def input_constants(problem: ConvProblem) -> dict[str, int | bool]:
    """Where the input's pixels lie, and which of them are staged."""
    told = window_constants(problem) | depth_constants(problem)
    deep, high, wide = extents(problem)
    named = ("N", "D", "H", "W", "X_N", "X_D", "X_H", "X_W", "FRONT", "TOP", "LEFT")
    return {name: told[name] for name in named} | {"DP": deep, "HP": high, "WP": wide}


def gradient_constants(problem: ConvProblem) -> dict[str, int | bool]:
    """The same of the output's gradient, all of it."""
    told = window_constants(problem) | depth_constants(problem)
    sizes = {"D": told["Z"], "H": told["P"], "W": told["Q"]}
    strides = {"X_N": told["Y_N"], "X_D": told["Y_Z"], "X_H": told["Y_P"], "X_W": told["Y_Q"]}
    lying = {"DP": told["Z"], "HP": told["P"], "WP": told["Q"], "FRONT": 0, "TOP": 0, "LEFT": 0}
    return {"N": told["N"], **sizes, **strides, **lying}


def _staged(spec: TensorSpec, channels: int, pixels: int, algorithm: Algorithm, begins: int) -> Staged:
    most = min(_MOST_CHUNKS, max(_SEARCHERS * BLOCK // channels, 1))
    chunks = min(most, -(-spec.shape[0] * prod(spec.shape[2:]) // _LEAST_OF_A_CHUNK))
    return Staged(pixels, channels, numbers_of(algorithm), chunks, begins)
