"""A sweep: one size of a problem over several values."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product
from math import prod

from convwright.errors import BadInput
from convwright.naming import whole_number
from convwright.suites.suite import Point, Row, Suite
from convwright.suites.variation import varied

_FORM = "a sweep is written ih=64..512:*2, ic=8..64:+8 or kh=1,3,5"
_RANGE = re.compile(r"(\d+)\.\.(\d+):([*+])(\d+)")
_MOST = 10_000


@dataclass(frozen=True, slots=True)
class Sweep:
    """``size`` is named as in the text form; ``geometric`` says that each value is a multiple of the one before."""

    size: str
    values: tuple[int, ...]
    geometric: bool = False

    @classmethod
    def parse(cls, text: str) -> Sweep:
        """Read ``size=first..last:*factor``, ``size=first..last:+step`` or ``size=value,value,…``.

        >>> Sweep.parse("ih=64..512:*2").values, Sweep.parse("ic=1..30:+8").values, Sweep.parse("kh=1,3,5").values
        ((64, 128, 256, 512), (1, 9, 17, 25), (1, 3, 5))
        """
        size, equals, written = text.replace(" ", "").partition("=")
        if not equals or not size or not written:
            raise BadInput(f"{_FORM}, got {text!r}")
        if ".." in written:
            values, geometric = _range(written, text)
        else:
            values, geometric = tuple(whole_number(f"a value of {size}", part) for part in written.split(",")), False
        if len(set(values)) < len(values):
            raise BadInput(f"each value of a sweep may stand once, got {text!r}")
        return cls(size, values, geometric)


def swept(suite: Suite, sweeps: Sequence[Sweep]) -> Suite:
    """Each row of ``suite`` at every combination of the sweeps' values, the last sweep's values closest together.

    >>> stem = Suite("mine", "", "", "", (Row("stem", "ic3oc64ih224kh7sh2ph3"),))
    >>> [row.name for row in swept(stem, [Sweep.parse("ih=32,64"), Sweep.parse("mb=1,8")]).rows]
    ['stem ih=32 mb=1', 'stem ih=32 mb=8', 'stem ih=64 mb=1', 'stem ih=64 mb=8']
    """
    if not sweeps:
        return suite
    names = [sweep.size for sweep in sweeps]
    if len(set(names)) < len(names):
        raise BadInput(f"each size can be swept once, got sweeps of {', '.join(names)}")
    count = len(suite.rows) * prod(len(sweep.values) for sweep in sweeps)
    if count > _MOST:
        raise BadInput(f"at most {_MOST:,} problems are made by sweeping, these sweeps make {count:,}")
    return replace(suite, rows=tuple(_at(row, point) for row in suite.rows for point in points(sweeps)))


def points(sweeps: Sequence[Sweep]) -> Iterator[Point]:
    """All combinations of values, each as sizes by name."""
    for values in product(*(sweep.values for sweep in sweeps)):
        yield tuple(zip((sweep.size for sweep in sweeps), values, strict=True))


def _at(row: Row, point: Point) -> Row:
    where = " ".join(f"{name}={value}" for name, value in point)
    name = where if row.is_unnamed else f"{row.name} {where}"
    try:
        return replace(row, name=name, text=varied(row.text, dict(point)), at=point)
    except BadInput as error:
        raise BadInput(f"{name}: {error}") from None


def _range(written: str, text: str) -> tuple[tuple[int, ...], bool]:
    parts = _RANGE.fullmatch(written)
    if parts is None or not written.isascii():
        raise BadInput(f"{_FORM}, got {text!r}")
    first, last, by = (whole_number(f"a number of {text!r}", parts[index]) for index in (1, 2, 4))
    geometric = parts[3] == "*"
    if first > last:
        raise BadInput(f"a sweep goes from a smaller value to a larger one, got {text!r}")
    if geometric and (by < 2 or first < 1):
        raise BadInput(f"a sweep by a factor begins at 1 or above and has a factor of at least 2, got {text!r}")
    if not geometric and by < 1:
        raise BadInput(f"a sweep by steps has steps of at least 1, got {text!r}")
    if not geometric and (last - first) // by >= _MOST:
        raise BadInput(f"at most {_MOST:,} problems are made by sweeping, got {text!r}")
    if not geometric:
        return tuple(range(first, last + 1, by)), False
    values = [first]
    while values[-1] * by <= last:
        values.append(values[-1] * by)
    return tuple(values), True
