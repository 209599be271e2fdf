"""The taps of a filter, each with the part of the input that it reads and the outputs that this contributes to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product

from convwright.core.geometry import Axis
from convwright.core.problem import ConvProblem

Slices = tuple[slice, ...]
_ALL = (slice(None), slice(None))


@dataclass(frozen=True, slots=True)
class Tap:
    """One tap. ``stored`` is its index in the weight; ``x`` and ``y`` index the input and output elements that it
    connects.

    ``whole``: the tap reads no padding for any output.
    """

    stored: tuple[int, ...]
    x: Slices
    y: Slices
    whole: bool


def taps(problem: ConvProblem) -> tuple[Tap, ...]:
    """All taps that read at least one element of the input.

    >>> [(tap.stored, tap.x[2], tap.y[2]) for tap in taps(ConvProblem.of((1, 1, 4), (1, 1, 2), padding=1))]
    [((0,), slice(0, 4, 1), slice(1, 5, 1)), ((1,), slice(0, 4, 1), slice(0, 4, 1))]
    """
    by_axis = [[(tap, *_met(axis, tap)) for tap in range(axis.taps)] for axis in problem.axes]
    by_axis = [[met for met in axis if len(met[2])] for axis in by_axis]
    return tuple(_tap(problem, met) for met in product(*by_axis))


def all_whole(problem: ConvProblem) -> bool:
    """True if no tap reads padding."""
    return all(axis.pad[0] == 0 and (axis.out - 1) * axis.stride + axis.reach <= axis.size for axis in problem.axes)


def _tap(problem: ConvProblem, met: Sequence[tuple[int, range, range]]) -> Tap:
    """The tap at these positions, with the inputs that it reads and their outputs."""
    positions = tuple(position for position, _, _ in met)
    mirrored = tuple(count - 1 - position for count, position in zip(problem.taps, positions, strict=True))
    return Tap(
        mirrored if problem.flip else positions,
        (*_ALL, *(_slice(inputs) for _, inputs, _ in met)),
        (*_ALL, *(_slice(outputs) for _, _, outputs in met)),
        all(len(outputs) == out for (_, _, outputs), out in zip(met, problem.y.shape[2:], strict=True)),
    )


def _met(axis: Axis, tap: int) -> tuple[range, range]:
    """The inputs that ``tap`` reads, and the outputs that read them."""
    first = tap * axis.dilation - axis.pad[0]
    start = max(0, -(first // axis.stride))
    stop = max(start, min(axis.out, (axis.size - 1 - first) // axis.stride + 1))
    begin = first + start * axis.stride
    return range(begin, begin + (stop - start) * axis.stride, axis.stride), range(start, stop)


def _slice(positions: range) -> slice:
    return slice(positions.start, positions[-1] + 1, positions.step)
