"""The taps of a filter, each with the part of the input that it reads and the outputs for which it does."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product

from convwright.core.geometry import Axis
from convwright.core.problem import ConvProblem

Slices = tuple[slice, ...]
_ALL = (slice(None), slice(None))


@dataclass(frozen=True, slots=True)
class Tap:
    """One tap. ``stored`` is where the weight has it; ``x`` and ``y`` cut out of input and output what meets in it.

    ``whole`` says that every output meets it inside the input, none in the padding.
    """

    stored: tuple[int, ...]
    x: Slices
    y: Slices
    whole: bool


def taps(problem: ConvProblem) -> tuple[Tap, ...]:
    """All taps that meet any element of the input at all.

    >>> [(tap.stored, tap.x[2], tap.y[2]) for tap in taps(ConvProblem.of((1, 1, 4), (1, 1, 2), padding=1))]
    [((0,), slice(0, 4, 1), slice(1, 5, 1)), ((1,), slice(0, 4, 1), slice(0, 4, 1))]
    """
    axes, found = problem.axes, []
    for position in product(*map(range, problem.taps)):
        met = [_met(axis, tap) for axis, tap in zip(axes, position, strict=True)]
        if all(len(outputs) for _, outputs in met):
            mirrored = (count - 1 - tap for count, tap in zip(problem.taps, position, strict=True))
            found.append(
                Tap(
                    tuple(mirrored) if problem.flip else position,
                    (*_ALL, *(_slice(inputs) for inputs, _ in met)),
                    (*_ALL, *(_slice(outputs) for _, outputs in met)),
                    all(len(outputs) == axis.out for axis, (_, outputs) in zip(axes, met, strict=True)),
                )
            )
    return tuple(found)


def _met(axis: Axis, tap: int) -> tuple[range, range]:
    """The inputs that ``tap`` reads, and the outputs for which it reads them."""
    first = tap * axis.dilation - axis.pad[0]
    start = max(0, -(first // axis.stride))
    stop = max(start, min(axis.out, (axis.size - 1 - first) // axis.stride + 1))
    begin = first + start * axis.stride
    return range(begin, begin + (stop - start) * axis.stride, axis.stride), range(start, stop)


def _slice(positions: range) -> slice:
    return slice(positions.start, positions[-1] + 1, positions.step)
