"""A chart of a predicted sweep: the time of the choice with its band, in a colour for each algorithm, and measured
times."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from operator import attrgetter
from pathlib import Path

from convwright.api.predicted_sweep import PredictedSweep, SweepPoint
from convwright.core.finding import Interval
from convwright.report.plot import Chart, Curve, draw_chart
from convwright.wording.compact import without_size

# matplotlib leaves labels that begin with this out of the legend.
_NO_LABEL = "_"


def draw_predicted(found: PredictedSweep, path: Path) -> None:
    """Draw to a .png, .svg or .pdf file."""
    draw_chart(chart_of(found), path)


def chart_of(found: PredictedSweep) -> Chart:
    """The chart. Neighbouring points with the same algorithm are one line. An algorithm has one colour everywhere."""
    colours: dict[str, int] = {}
    curves: list[Curve] = []
    for name, points in groupby(found.points, attrgetter("family")):
        label = f"{_NO_LABEL}{name}" if name in colours else name
        curves.append(_curve(label, list(points), colours.setdefault(name, len(colours))))
    measured = [(point.value, point.measured_us) for point in found.points if point.measured_us is not None]
    if measured:
        times = tuple(Interval(us, us, us) for _, us in measured)
        values = tuple(float(value) for value, _ in measured)
        curves.append(Curve("measured, fastest", values, times, len(colours), line="", marker="x"))
    title = f"{without_size(found.points[0].problem, found.size)} on {found.device}"
    return Chart(title, found.size, tuple(curves), caption=found.model)


def _curve(label: str, points: Sequence[SweepPoint], colour: int) -> Curve:
    values = tuple(float(point.value) for point in points)
    return Curve(label, values, tuple(point.time_us for point in points), colour)
