"""The steps of an engine, or of a plan that has not been built, as a table for people."""

from __future__ import annotations

from collections.abc import Iterator
from fnmatch import fnmatchcase
from math import inf
from typing import Any

from rich.console import Console
from rich.text import Text

from convwright.core.device import DeviceFacts
from convwright.engine.buckets.bucketed import BucketedEngine
from convwright.engine.buckets.buckets import bucket_text
from convwright.engine.engine import Engine
from convwright.engine.partial import PartialEngine
from convwright.engine.planned_engine import PlannedEngine, SavedPlan
from convwright.engine.planning.assignment import Step
from convwright.engine.planning.step_text import layouts, types, what_runs
from convwright.errors import BadInput
from convwright.graph.operations import NOTHING_RUNS
from convwright.prediction.physics import least_us
from convwright.report.words.amounts import interval_text
from convwright.report.words.sheet import Sheet

_Part = Engine | PlannedEngine | SavedPlan
Planned = _Part | BucketedEngine | PartialEngine

_COLUMNS = ("part", "step", "runs", "type", "layout", "µs", "between", "known", "limit", "next best", "why")
_KEPT = ("step", "µs", "runs", "between", "known", "why")
_FOLDED = ("part", "step", "runs", "next best", "why")
_LEFT = ("type", "layout", "known")
_UNKNOWN = "–"
_MOST_NAMED = 8


def print_steps(engine: Planned, console: Console, *, layer: str | None = None, top: int | None = None) -> None:
    """One row for each step whose name is like ``layer``, at most ``top``, and what all steps come to. An engine of
    several parts has a table for each."""
    found = _rows(engine, layer)
    for place, (name, each) in enumerate(_parts(engine)):
        if name:
            console.print(Text(f"{chr(10) if place else ''}{name}:"))
        here = [(row, data) for row, data in found if row["part"] == name]
        sheet = Sheet(_COLUMNS[1:], tuple(row for row, _ in here), _KEPT, _FOLDED, _LEFT)
        sheet.print_to(console, top)
        console.print("")
        if layer is not None:
            time_us = sum(data["time_us"] or 0.0 for _, data in here)
            steps = f"{len(here)} of {len(each.assignment.steps)} steps"
            console.print(Text(f"steps like {layer!r}: {steps}, {time_us:,.1f} µs together"), soft_wrap=True)
            console.print("the whole network:")
        for line in each.explain().partition("\n\n")[2].splitlines():
            console.print(Text(line), soft_wrap=True)


def steps_sheet(engine: Planned, layer: str | None = None) -> Sheet:
    """The rows of all parts as one table."""
    return Sheet(_COLUMNS, tuple(row for row, _ in _rows(engine, layer)), _KEPT, _FOLDED, _LEFT)


def steps_data(engine: Planned, layer: str | None = None) -> list[dict[str, Any]]:
    """One flat row for each step, for other programs."""
    return [data for _, data in _rows(engine, layer)]


def _rows(engine: Planned, layer: str | None) -> list[tuple[dict[str, str], dict[str, Any]]]:
    steps = [
        (name, each.facts, step, basis)
        for name, each in _parts(engine)
        for step, basis in zip(each.assignment.steps, _bases(each), strict=True)
    ]
    shown = [row for row in steps if layer is None or _is_like(row[2].name, layer)]
    if layer is not None and not shown:
        there = [step.name for _, _, step, _ in steps]
        rest = f" and {len(there) - _MOST_NAMED} more" if len(there) > _MOST_NAMED else ""
        raise BadInput(f"no layer is called like {layer!r}; there are {', '.join(there[:_MOST_NAMED])}{rest}")
    return [_row(*row) for row in shown]


def _is_like(name: str, pattern: str) -> bool:
    """Whether the name of a step, or of one of those that it joins, is like ``pattern``."""
    return any(fnmatchcase(part, pattern) for part in (name, *name.split("+")))


def _parts(engine: Planned) -> Iterator[tuple[str, _Part]]:
    """The engines that it is made of, with their names where there are several."""
    if isinstance(engine, BucketedEngine):
        for bucket, each in engine.engines.items():
            yield f"bucket {bucket_text(bucket)}", each
    elif isinstance(engine, PartialEngine):
        yield from engine.engines.items()
    else:
        yield "", engine


def _bases(engine: _Part) -> list[str]:
    """What the time of each step rests on; of an engine that was measured nothing is said."""
    if isinstance(engine, PlannedEngine | SavedPlan):
        return [str(basis) for basis in engine.bases]
    return [""] * len(engine.assignment.steps)


def _row(part: str, device: DeviceFacts, step: Step, basis: str) -> tuple[dict[str, str], dict[str, Any]]:
    least = None if step.candidate is None else least_us(step.candidate, device)
    nothing, known, second = isinstance(step.operation, NOTHING_RUNS), step.time_us.high < inf, step.runner_up
    time_us = step.time_us.value
    cells = {
        "part": part,
        "step": step.name,
        "runs": what_runs(step),
        "type": types(step),
        "layout": layouts(step),
        "µs": _UNKNOWN if nothing else f"{'' if known or basis else '≥'}{time_us:,.1f}",
        "between": interval_text(step.time_us) if basis and not nothing else _UNKNOWN,
        "known": basis,
        "limit": _UNKNOWN if least is None else f"{least:,.1f}",
        "next best": _UNKNOWN if second is None else f"{second.times:.2f}x {second.id.partition('[')[0]}",
        "why": "" if nothing else step.reason,
    }
    data = {
        "part": part,
        "step": step.name,
        "runs": what_runs(step),
        "type": types(step),
        "layout": layouts(step),
        "time_us": None if nothing else time_us,
        "low_us": None if nothing else step.time_us.low,
        "high_us": None if nothing or not known else step.time_us.high,
        "known": basis,
        "limit_us": least,
        "next_best": None if second is None else second.id,
        "next_best_times": None if second is None else second.times,
        "reason": step.reason,
    }
    return cells, data
