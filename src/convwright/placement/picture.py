"""Draw the schedule of a placement: a line for each instance, time from left to right."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from convwright.placement.placement import Placement
from convwright.wording.pictures import COLOURS, picture_path

_NARROW = 0.04  # of the width: a shorter run has no room for its name


def draw(placement: Placement, path: Path | str) -> None:
    """Draw a placement. One-off jobs are bars from start to end. Streams are hatched, with a height that shows the
    share of the instance's time."""
    path = picture_path(path)
    from matplotlib.figure import Figure

    names = [name for name, _ in placement.utilisation]
    figure = Figure(figsize=(10, 1.2 + 0.4 * len(names)), layout="constrained")
    axes: Any = figure.subplots()
    width = placement.makespan_s or 1.0
    colours = {each.job.name: COLOURS[at % len(COLOURS)] for at, each in enumerate(placement.assigned)}
    for run in placement.runs:
        line, took = names.index(run.instance), run.end_s - run.start_s
        axes.barh(line, took, 0.8, run.start_s, color=colours[run.job], edgecolor="white", linewidth=0.4)
        if took > _NARROW * width:
            axes.text(run.start_s + took / 2, line, run.job, ha="center", va="center", fontsize=8, clip_on=True)
    _draw_streams(axes, placement, colours, width)
    axes.set(xlim=(0, width), ylim=(len(names) - 0.5, -0.5), yticks=range(len(names)), yticklabels=names)
    axes.set(xlabel="seconds" if placement.runs else "streams only")
    figure.savefig(path)


def _draw_streams(axes: Any, placement: Placement, colours: dict[str, str], width: float) -> None:
    for line, (name, _) in enumerate(placement.utilisation):
        top = line + 0.4
        for each in placement.assigned:
            if each.job.is_stream and name in each.instances:
                height, colour = 0.8 * each.way.share, colours[each.job.name]
                top -= height
                axes.barh(top + height / 2, width, height, color=colour, alpha=0.5, hatch="//", edgecolor="white")
                axes.text(width / 2, top + height / 2, each.job.name, ha="center", va="center", fontsize=8)
