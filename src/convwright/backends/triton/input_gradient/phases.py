"""Which pixels of an input are reached by the same taps, where windows are more than one pixel apart."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from math import prod

from convwright.core.geometry import Axis
from convwright.core.problem import ConvProblem

_ONE = Axis(size=1, taps=1, stride=1, pad=(0, 0), dilation=1)


@dataclass(frozen=True, slots=True)
class Phase:
    """The pixels that a tap reaches, and with it those that lie multiples of the strides behind it.

    ``tap`` is the first of them in three dimensions, which need not be there: then none reaches these pixels, and
    ``taps`` is 0. ``pixels`` are those of the whole batch.
    """

    tap: tuple[int, int, int]
    pixels: int
    taps: int


def phases(problem: ConvProblem) -> tuple[Phase, ...]:
    """All that have pixels, those that most taps reach first. Dimensions that the problem has not come first."""
    axes = _axes(problem)
    every = (
        Phase(
            (t, r, s),
            problem.n * prod(map(len, map(_pixels, axes, (t, r, s)))),
            prod(map(_taps, axes, (t, r, s))),
        )
        for t, r, s in product(*(range(axis.stride) for axis in axes))
    )
    return tuple(sorted((phase for phase in every if phase.pixels), key=lambda phase: -phase.taps))


def reads_beyond(problem: ConvProblem) -> bool:
    """Whether a tap that reaches a pixel would have done so from outside of the output."""
    return any(_reads_beyond(axis, tap) for axis in _axes(problem) for tap in range(min(axis.stride, axis.taps)))


def _axes(problem: ConvProblem) -> tuple[Axis, ...]:
    return (_ONE,) * (3 - problem.rank) + problem.axes


def _pixels(axis: Axis, tap: int) -> range:
    return range((tap * axis.dilation - axis.pad[0]) % axis.stride, axis.size, axis.stride)


def _taps(axis: Axis, tap: int) -> int:
    return len(range(tap, axis.taps, axis.stride))


def _reads_beyond(axis: Axis, tap: int) -> bool:
    pixels = _pixels(axis, tap)
    if not pixels:
        return False
    first, last = ((pixel + axis.pad[0] - tap * axis.dilation) // axis.stride for pixel in (pixels[0], pixels[-1]))
    return first < (_taps(axis, tap) - 1) * axis.dilation or last >= axis.out
