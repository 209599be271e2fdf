"""Charts and fits as image files. matplotlib is imported only when something is drawn."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from math import ceil, inf, isfinite, log10
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

from convwright.core.finding import Interval
from convwright.errors import BadInput
from convwright.report.words.amounts import percent_text, readable_time
from convwright.wording.pictures import picture_path

if TYPE_CHECKING:
    from collections.abc import Iterator

    from matplotlib.axes import Axes

_COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#e69f00", "#882255", "#7a7a1e")
MOST_COLOURS = len(_COLOURS)
_GREY = "#777777"
# The metadata field that holds the date of a file of this kind.
_DATES = {".svg": "Date", ".pdf": "CreationDate"}
# The height of a fit's axes, in multiples of its highest point.
_ROOM = 1.3
_MOST_NAMES = 40
# An even axis has a label at each value if it is at most so many times as long as the smallest distance of two.
_MOST_STEPS = 20
# The time axis extends past all values by the first factor times a typical interval, and by the second at most.
_BEYOND, _MOST_BEYOND = 1.5, 3.0
# A note is above its point if the point is in this lowest part of a linear axis.
_LOW = 0.1
# An axis over more powers of ten than this has ticks at powers of ten only.
_MANY_DECADES = 3
# The distance between the points of one row of a suite.
_ASIDE = 0.12
# A legend with more entries than this is drawn beside the axes, where it covers no points.
_MOST_INSIDE = 6


@dataclass(frozen=True, slots=True)
class Curve:
    """Times in microseconds against the swept size.

    ``colour`` is an index; ``line`` and ``marker`` are matplotlib's. ``notes`` are texts beside points: (x, y, text).
    """

    label: str
    x: tuple[float, ...]
    times_us: tuple[Interval, ...]
    colour: int = 0
    line: str = "-"
    marker: str = "o"
    notes: tuple[tuple[float, float, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Chart:
    """Curves in one pair of axes.

    ``logarithmic`` applies to both axes. ``caption`` gives the conditions of the measurement. If ``names`` are given,
    x is an index into them.
    """

    title: str
    x_label: str
    curves: tuple[Curve, ...]
    logarithmic: bool = False
    caption: str = ""
    names: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Fit:
    """The samples of one timing, as (calls, microseconds), and the line fitted to them."""

    label: str
    samples: tuple[tuple[int, float], ...]
    call_us: Interval
    overhead_us: float | None


def draw_chart(chart: Chart, path: Path) -> None:
    """Draw every curve with its confidence band. An interval that the axis cuts off ends in a triangle."""
    with _axes(path, 1, chart.title, chart.caption) as (axes,):
        from matplotlib.ticker import MaxNLocator

        logarithmic = chart.logarithmic or bool(chart.names)
        shown = _shown(chart, logarithmic=logarithmic)
        for place, curve in enumerate(chart.curves):
            # Rows of a suite are unrelated: no line joins them, and the points of one row are side by side.
            aside = _ASIDE * (place - (len(chart.curves) - 1) / 2) if chart.names else 0.0
            _draw_curve(axes, curve, shown, joined=not chart.names, aside=aside)
        if any(_is_cut_off(each, shown) for curve in chart.curves for each in curve.times_us):
            axes.plot([], [], color=_GREY, marker="^", markersize=4, linestyle="", label="interval cut off by the axis")
        if logarithmic:
            axes.set_yscale("log")
        else:
            axes.set_ylim(bottom=0)
        _label_times(axes, logarithmic=logarithmic)
        if chart.logarithmic:
            axes.set_xscale("log", base=2)
        ticks = sorted({x for curve in chart.curves for x in curve.x})
        if chart.names:
            _name(axes, chart.names)
        elif chart.logarithmic or _are_apart(ticks):
            axes.set_xticks(ticks, labels=[f"{tick:g}" for tick in ticks])
        else:
            axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        axes.set_xlabel(chart.x_label)
        axes.set_ylabel("time of a call")


def draw_fits(fits: Sequence[Fit], path: Path, *, title: str, caption: str = "") -> None:
    """Draw the samples of each timing, the fitted line with its intercept and slope, and the slope's interval."""
    with _axes(path, len(fits), title, caption) as every:
        for axes, fit in zip(every, fits, strict=True):
            _draw_fit(axes, fit)


def _shown(chart: Chart, *, logarithmic: bool) -> tuple[float, float]:
    """The ends of the time axis. They leave room for all values and for intervals of median width, so that a few wide
    intervals do not stretch the axis."""
    known = [each for curve in chart.curves for each in curve.times_us if each.value > 0 and isfinite(each.value)]
    if not known:
        return 0.0, 1.0
    above = median(each.high / each.value for each in known)
    below = median(each.value / each.low if each.low > 0 else inf for each in known)
    above, below = (min(_BEYOND * factor, _MOST_BEYOND) for factor in (above, below))
    least, most = min(each.value for each in known), max(each.value for each in known)
    return (least / below if logarithmic else 0.0), most * above


def _is_cut_off(interval: Interval, shown: tuple[float, float]) -> bool:
    return _is_below(interval, shown) or interval.high > shown[1]


def _is_below(interval: Interval, shown: tuple[float, float]) -> bool:
    """Whether the axis cuts off the lower end. An axis that begins at 0 does not, since no time is negative."""
    return interval.low < shown[0] and shown[0] > 0


def _draw_curve(axes: Axes, curve: Curve, shown: tuple[float, float], *, joined: bool, aside: float) -> None:
    colour, values = _COLOURS[curve.colour % MOST_COLOURS], [each.value for each in curve.times_us]
    xs = [x + aside for x in curve.x]
    # A limit has a line and no marker. Without its line it is drawn as a dash.
    line, marker = (curve.line, curve.marker) if joined else ("none", curve.marker or "_")
    axes.plot(
        xs, values, linestyle=line or "none", marker=marker, markersize=4 if marker != "_" else 9, color=colour,
        label=curve.label,
    )  # fmt: skip
    cut_off = [_is_cut_off(each, shown) for each in curve.times_us]
    low = [max(each.low, shown[0]) for each in curve.times_us]
    high = [min(each.high, shown[1]) for each in curve.times_us]
    if joined:
        within = [not each for each in cut_off]
        axes.fill_between(xs, low, high, where=within, color=colour, alpha=0.2, linewidth=0)
    for x, bottom, top, interval, wide in zip(xs, low, high, curve.times_us, cut_off, strict=True):
        if joined and not wide:
            continue
        axes.plot([x, x], [bottom, top], color=colour, alpha=0.5, linewidth=1)
        if _is_below(interval, shown):
            axes.plot([x], [bottom], color=colour, marker="v", markersize=4)
        if interval.high > shown[1]:
            axes.plot([x], [top], color=colour, marker="^", markersize=4)
    for x, y, text in curve.notes:
        late = x > sum(curve.x) / len(curve.x)
        axes.annotate(
            text, (x, y), xytext=(-4 if late else 4, -12 if shown[0] > 0 or y > _LOW * shown[1] else 8),
            textcoords="offset points", fontsize=7, color=colour, horizontalalignment="right" if late else "left",
        )  # fmt: skip


def _are_apart(ticks: Sequence[float]) -> bool:
    """Whether an even axis has room for a label at each of these values."""
    return all((ticks[-1] - ticks[0]) <= _MOST_STEPS * (after - before) for before, after in pairwise(ticks))


def _name(axes: Axes, names: Sequence[str]) -> None:
    """Label the x axis with evenly spaced names, as many as fit."""
    shown = range(0, len(names), ceil(len(names) / _MOST_NAMES))
    axes.set_xticks([*shown], labels=[names[place] for place in shown], rotation=90, fontsize=6)


def _label_times(axes: Axes, *, logarithmic: bool) -> None:
    """Label the time axis with units. A logarithmic axis has ticks at 1, 2 and 5 times powers of ten; one over less
    than a power of ten has ticks at round numbers."""
    from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullLocator

    if logarithmic:
        decades = log10(axes.get_ylim()[1] / axes.get_ylim()[0])
        steps = (1.0,) if decades > _MANY_DECADES else (1.0, 2.0, 5.0)
        few = decades < 1
        axes.yaxis.set_major_locator(MaxNLocator(6) if few else LogLocator(subs=steps, numticks=20))
        axes.yaxis.set_minor_locator(NullLocator())
    axes.yaxis.set_major_formatter(FuncFormatter(lambda time_us, _: readable_time(time_us)))


def _draw_fit(axes: Axes, fit: Fit) -> None:
    counts, times_us = [n for n, _ in fit.samples], [time_us for _, time_us in fit.samples]
    top_us = _ROOM * _top_us(fit)
    outside = sum(time_us > top_us for time_us in times_us)
    above = f", {outside} above the axis" if outside else ""
    axes.plot(counts, times_us, ".", color=_GREY, markersize=3, label=f"{len(counts)} samples{above}")
    slope = fit.call_us
    label = f"{readable_time(slope.value)} a call ± {percent_text(slope)}%"
    if fit.overhead_us is not None:
        # Every line in the slope's interval passes through the mean of the samples: the band is a bow tie.
        middle, ends = sum(counts) / len(counts), [0, max(counts)]
        height = fit.overhead_us + slope.value * middle
        low, value, high = ([height + by * (n - middle) for n in ends] for by in (slope.low, slope.value, slope.high))
        axes.plot(ends, value, color=_COLOURS[0], label=f"{label}, intercept {_overhead(fit.overhead_us)}")
        axes.fill_between(ends, low, high, color=_COLOURS[0], alpha=0.2, linewidth=0, label="95 % interval")
    else:
        axes.plot([], [], " ", label=f"{label}, no regression: all samples have the same number of calls")
    axes.set_xlim(left=0)
    axes.set_xticks([0, *sorted(set(counts))])
    axes.set_ylim(0, top_us)
    axes.set_title(fit.label, fontsize=8)
    axes.set_xlabel("calls in a sample")
    _label_times(axes, logarithmic=False)
    axes.set_ylabel("time of a sample")


def _top_us(fit: Fit) -> float:
    """The end of the line or the median of the longest samples, whichever is higher. Single samples that other work
    disturbed can be far above both."""
    most = max(n for n, _ in fit.samples)
    longest = median(time_us for n, time_us in fit.samples if n == most)
    return max(longest, (fit.overhead_us or 0.0) + fit.call_us.value * most)


@contextmanager
def _axes(path: Path, count: int, title: str, caption: str) -> Iterator[Sequence[Axes]]:
    """Axes side by side, in a figure that is written to ``path`` when the block ends."""
    picture_path(path)
    # pyplot would keep the figure and look for a display.
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8 if count == 1 else 6 * count, 5), dpi=150, layout="constrained")
    every = [figure.add_subplot(1, count, index + 1) for index in range(count)]
    yield every
    for axes in every:
        axes.grid(visible=True, alpha=0.3)
        _legend(axes)
    figure.suptitle(title, fontsize=9)
    figure.supxlabel(caption, fontsize=6, color=_GREY)
    try:
        # The same data give the same file: it has no date, and its ids do not depend on a random salt.
        with rc_context({"svg.hashsalt": "convwright"}):
            dated = _DATES.get(path.suffix.lower())
            figure.savefig(path, metadata={dated: None} if dated else {})
    except OSError as error:
        raise BadInput(f"{str(path)!r} cannot be written to: {error.strerror or error}") from error


def _legend(axes: Axes) -> None:
    entries = len(axes.get_legend_handles_labels()[1])
    if entries > _MOST_INSIDE:
        axes.legend(fontsize=7, handlelength=3.5, loc="upper left", bbox_to_anchor=(1.0, 1.0))
    else:
        axes.legend(fontsize=7, handlelength=3.5)


def _overhead(time_us: float) -> str:
    """The intercept as text. A negative one is noise and is not shown."""
    return readable_time(time_us) if time_us >= 0 else "–"
