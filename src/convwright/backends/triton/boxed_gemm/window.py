"""What the taps of a product of boxes read, and where it is written."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from math import prod

from convwright.backends.triton.boxed_gemm.boxes import Box, Images
from convwright.backends.triton.kernel_call import TensorMap
from convwright.backends.triton.operands import pair
from convwright.core.problem import ConvProblem

Pair = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Window:
    """Taps in rows and columns, so far apart, over pixels of ``read`` from so far ahead of the first one on.

    A tap finds so many ``channels`` in a pixel and has so many ``weights``, the last of which may meet nothing.
    """

    read: Images
    written: Images
    channels: int
    weights: int
    taps: Pair
    stride: Pair = (1, 1)
    ahead: Pair = (0, 0)
    dilation: Pair = (1, 1)
    flip: bool = False

    @classmethod
    def of(cls, problem: ConvProblem) -> Window:
        return _window_of(problem)

    @property
    def reduction(self) -> int:
        return prod(self.taps) * self.weights

    def box(self, pixels: int) -> Box:
        return Box.of(self.written, pixels, self.stride)

    @property
    def constants(self) -> dict[str, int | bool]:
        """What the kernel is told of it."""
        N, P, Q = self.written.sizes
        (R, S), (stride_h, stride_w), (top, left) = self.taps, self.stride, self.ahead
        dilation_h, dilation_w = self.dilation
        return {
            "N": N, "C": self.weights, "R": R, "S": S, "P": P, "Q": Q, "STRIDE_H": stride_h, "STRIDE_W": stride_w,
            "TOP": top, "LEFT": left, "DILATION_H": dilation_h, "DILATION_W": dilation_w, "FLIP": self.flip,
        }  # fmt: skip

    def maps(self, outputs: int, box: Box, bn: int, bk: int) -> dict[str, TensorMap]:
        """What the copy engine is told of the operands, with so many channels in the output."""
        row = self.reduction
        return {
            "x": self.read.map(self.channels, box, bk, self.stride),
            "w": TensorMap((outputs, row), (row, 1), (bn, bk), (1, 1)),
            "y": self.written.map(outputs, box, bn, (1, 1)),
        }


@lru_cache(maxsize=256)
def _window_of(problem: ConvProblem) -> Window:
    """Where each pixel is read for itself alone, all of them are one row."""
    read, written = Images.of(problem.x), Images.of(problem.y)
    padded = any(side for sides in problem.padding for side in sides)
    alone = prod(problem.taps) == prod(problem.stride) == 1 and not padded
    if alone and read.are_one_row and written.are_one_row:
        read, written = read.in_one_row, written.in_one_row
    return Window(
        read, written, problem.c, problem.c, pair(problem.taps, 1), pair(problem.stride, 1),
        pair(tuple(before for before, _ in problem.padding), 0), pair(problem.dilation, 1), problem.flip,
    )  # fmt: skip
