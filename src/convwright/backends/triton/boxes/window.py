"""What the taps of a product of boxes read, and where it is written."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from math import prod

from convwright.backends.triton.boxes.box import Box, Images
from convwright.backends.triton.launching.kernel_call import TensorMap
from convwright.backends.triton.operands import depth, pair
from convwright.core.problem import ConvProblem

Triple = tuple[int, int, int]


@dataclass(frozen=True, slots=True)
class Window:
    """Taps in planes, rows and columns, over pixels of ``read`` from so far ahead of the first one on."""

    read: Images
    written: Images
    channels: int
    outputs: int
    taps: Triple
    stride: Triple
    ahead: Triple
    dilation: Triple
    flip: bool

    @classmethod
    def of(cls, problem: ConvProblem) -> Window:
        return _window_of(problem)

    def box(self, pixels: int) -> Box:
        return Box.of(self.written, pixels, self.stride)

    def constants(self, box: Box) -> dict[str, int | bool]:
        """What a kernel is told of it, and of boxes that cover what is written."""
        _, Z, P, Q = self.written.sizes
        axes = {"STRIDE": self.stride, "DILATION": self.dilation}
        told = {
            f"{name}_{axis}": each for name, values in axes.items() for axis, each in zip("DHW", values, strict=True)
        }
        T, R, S = self.taps
        front, top, left = self.ahead
        told |= dict(zip(("IMAGES", "PLANES", "ROWS", "COLUMNS"), box.sides, strict=True))
        return told | {
            "Z": Z, "P": P, "Q": Q, "C": self.channels, "K": self.outputs, "T": T, "R": R, "S": S,
            "FRONT": front, "TOP": top, "LEFT": left, "FLIP": self.flip, "DEEP": self.read.deep,
            "BOXES": box.count(self.written.sizes),
        }  # fmt: skip

    def maps(self, box: Box, bn: int, bk: int) -> dict[str, TensorMap]:
        """What the copy engine is told of the operands: of the weight as taps by outputs by channels."""
        taps, row = prod(self.taps), prod(self.taps) * self.channels
        return {
            "x": self.read.map(self.channels, box, bk, self.stride),
            "w": TensorMap((taps, self.outputs, self.channels), (self.channels, row, 1), (1, bn, bk), (1, 1, 1)),
            "y": self.written.map(self.outputs, box, bn, (1, 1, 1)),
        }


@lru_cache(maxsize=256)
def _window_of(problem: ConvProblem) -> Window:
    """Where each pixel is read for itself alone, all of them are one row."""
    read, written = Images.of(problem.x), Images.of(problem.y)
    padded = any(side for sides in problem.padding for side in sides)
    alone = prod(problem.taps) == prod(problem.stride) == 1 and not padded
    if alone and read.are_one_row and written.are_one_row:
        read, written = read.in_one_row, written.in_one_row
    ahead = tuple(before for before, _ in problem.padding)
    return Window(
        read, written, problem.c, problem.k, _three(problem.taps, 1), _three(problem.stride, 1), _three(ahead, 0),
        _three(problem.dilation, 1), problem.flip,
    )  # fmt: skip


def _three(values: tuple[int, ...], missing: int) -> Triple:
    return depth(values, missing), *pair(values, missing)
