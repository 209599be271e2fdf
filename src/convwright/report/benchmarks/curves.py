"""Curves of benchmark results over a sweep or a suite: PyTorch's own call, the choice, algorithms and the limit."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import replace

from convwright.core.finding import Interval
from convwright.errors import BadInput
from convwright.report.benchmarks.result import Result
from convwright.report.plot import MOST_COLOURS, Chart, Curve
from convwright.suites.sweep import Sweep

# 7 markers and 8 colours have no common factor: a pair repeats only after 56 lines.
_MARKERS = ("s", "^", "v", "D", "P", "X", "<")
_CHOSEN = "chosen"
# The name of x if there is no sweep: x is the number of the row.
_ROW = "row"
_BRACKETS = re.compile(r"\[[^]]*\]")  # a candidate's configuration


def chart(
    results: Sequence[Result], sweeps: Sequence[Sweep], algorithms: Sequence[str], *, title: str, caption: str
) -> Chart:
    """Time against the values of the first sweep. Each row has its colour, and so has each combination of the other
    sweeps' values.

    Without a sweep, time against the rows in order.
    """
    if not sweeps:
        return _over_rows(results, algorithms, title=title, caption=caption)
    size, groups = sweeps[0].size, _groups(results, sweeps[0].size)
    if len(groups) > MOST_COLOURS:
        raise BadInput(
            f"a plot shows at most {MOST_COLOURS} swept problems, got {len(groups)}: sweep fewer sizes, or use --limit"
        )
    if len(groups) == 1:
        # With a single problem, each candidate has its colour.
        curves = [replace(curve, colour=index) for index, curve in enumerate(_curves("", results, size, algorithms))]
        curves = [replace(each, notes=_changes(results, size) if each.label == _CHOSEN else ()) for each in curves]
    else:
        curves = [
            replace(curve, colour=index)
            for index, (name, group) in enumerate(groups.items())
            for curve in _curves(f"{name}: ", group, size, algorithms)
        ]
    return Chart(title, size, _some(curves), sweeps[0].geometric, caption)


def _over_rows(results: Sequence[Result], algorithms: Sequence[str], *, title: str, caption: str) -> Chart:
    places = [replace(result, at=((_ROW, place),)) for place, result in enumerate(results)]
    curves = [replace(curve, colour=index) for index, curve in enumerate(_curves("", places, _ROW, algorithms))]
    names = tuple(result.name for result in results)
    return Chart(title, "problems in their order", _some(curves), caption=caption, names=names)


def _some(curves: Sequence[Curve]) -> tuple[Curve, ...]:
    if not curves:
        raise BadInput("there is nothing to draw: nothing was measured, and no limit is known")
    return tuple(curves)


def _groups(results: Iterable[Result], size: str) -> dict[str, list[Result]]:
    groups: dict[str, list[Result]] = {}
    for result in results:
        words = [f"{name}={value}" for name, value in result.at]
        base = result.name.removesuffix(" ".join(words)).strip()
        others = [word for word in words if not word.startswith(f"{size}=")]
        groups.setdefault(" ".join([base, *others]).strip(), []).append(result)
    return groups


def _curves(name: str, results: Sequence[Result], size: str, algorithms: Sequence[str]) -> Iterable[Curve]:
    def curve(label: str, times_us: Iterable[Interval | None], line: str, marker: str) -> Iterable[Curve]:
        points = [(_x(result, size), found) for result, found in zip(results, times_us, strict=True) if found]
        if points:
            x, known_us = zip(*sorted(points, key=lambda point: point[0]), strict=True)
            yield Curve(name + label, x, known_us, line=line, marker=marker)

    yield from curve(_CHOSEN, [result.time_us(result.choice) for result in results], "-", "o")
    # A dashed line over a solid one: where they coincide, both are visible.
    yield from curve("PyTorch's own call", [result.time_us(result.baseline) for result in results], "--", "o")
    for index, algorithm in enumerate(algorithms):
        times_us = [result.time_us(algorithm) for result in results]
        yield from curve(algorithm, times_us, "-.", _MARKERS[index % len(_MARKERS)])
    yield from curve("physical limit", [_limit(result) for result in results], ":", "")


def _changes(results: Sequence[Result], size: str) -> tuple[tuple[float, float, str], ...]:
    """The names of winning candidates, each at the first point where it wins."""
    notes, last = [], None
    for result in sorted(results, key=lambda each: _x(each, size)):
        time_us = result.time_us(result.choice)
        if time_us is not None and result.choice is not None:
            family = _BRACKETS.sub("", result.choice)
            if family != last:
                notes.append((_x(result, size), time_us.value, family))
            last = family
    return tuple(notes)


def _x(result: Result, size: str) -> float:
    return float(dict(result.at)[size])


def _limit(result: Result) -> Interval | None:
    return None if result.limit_us is None else Interval(result.limit_us, result.limit_us, result.limit_us)
