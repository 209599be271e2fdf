"""Settings of an engine's knobs near a valid setting."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import combinations

from convwright.backends.cudnn.graph.engine import Knobs

# A knob with more values than this is a count, for example of the parts of a sum. Doubling and halving it explores
# enough.
_FEW = 32


def neighbours(knobs: Knobs, ranges: Mapping[int, range]) -> Iterator[Knobs]:
    """Settings that differ from ``knobs`` in one knob, then those that differ in two. Many are not valid.

    >>> list(neighbours(((2, 1),), {2: range(3), 18: range(2)}))[:4]
    [((2, 0),), ((2, 2),), ((2, 1), (18, 0)), ((2, 1), (18, 1))]
    """
    now = dict(knobs)
    turns = [
        (knob, value) for knob, values in ranges.items() for value in _worth_trying(values) if now.get(knob) != value
    ]
    for turned in (*((turn,) for turn in turns), *combinations(turns, 2)):
        if len(dict(turned)) == len(turned):
            yield tuple(sorted((now | dict(turned)).items()))


def _worth_trying(values: range) -> list[int]:
    if len(values) <= _FEW:
        return list(values)
    powers = {2**i for i in range(values[-1].bit_length())}
    return [value for value in sorted(powers | {3 * power // 2 for power in powers}) if value in values]
