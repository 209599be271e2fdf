"""The steps of an engine, a plan or a prediction as a table for people."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from fnmatch import fnmatchcase
from math import inf
from typing import Any

from rich.console import Console
from rich.text import Text

from convwright.engine.buckets.bucketed import BucketedEngine
from convwright.engine.buckets.buckets import bucket_text
from convwright.engine.engine import Engine
from convwright.engine.inspecting.explained import disturbed, sums
from convwright.engine.network_prediction import LayerPrediction, NetworkPrediction, layer_prediction, sentences
from convwright.engine.partial import PartialEngine
from convwright.engine.planned_engine import PlannedEngine, plan_sentences
from convwright.errors import BadInput
from convwright.report.words.amounts import bytes_text, interval_text
from convwright.report.words.sheet import Sheet

_Part = Engine | PlannedEngine | NetworkPrediction
Planned = _Part | BucketedEngine | PartialEngine

_COLUMNS = ("part", "step", "runs", "type", "layout", "µs", "between", "memory", "known", "limit", "next best", "why")
_KEPT = ("step", "µs", "runs", "memory", "between", "known", "why")
_FOLDED = ("part", "step", "runs", "next best", "why")
_LEFT = ("type", "layout", "known")
_UNKNOWN = "–"
_MOST_NAMED = 8


def print_steps(engine: Planned, console: Console, *, layer: str | None = None, top: int | None = None) -> None:
    """One row for each step whose name is like ``layer``, at most ``top``, and what all steps come to. If the times are
    not trustworthy, that comes first. An engine of several parts has a table for each."""
    found = _found(engine, layer)
    for place, (name, each) in enumerate(_parts(engine)):
        if name:
            console.print(Text(f"{chr(10) if place else ''}{name}:"))
        if isinstance(each, Engine):
            for line in disturbed(each.assignment):
                console.print(Text(f"{line}\n"))
        here = [step for part, step in found if part == name]
        _sheet(("", step) for step in here).print_to(console, top)
        console.print("")
        if layer is not None:
            time_us = sum(step.time_us.value for step in here if step.time_us is not None)
            steps = f"{len(here)} of {len(_steps(each))} steps"
            console.print(Text(f"steps like {layer!r}: {steps}, {time_us:,.1f} µs together"))
            console.print("the whole network:")
        for line in _sums(each):
            console.print(Text(line))


def steps_sheet(engine: Planned, layer: str | None = None) -> Sheet:
    """The rows of all parts as one table."""
    return _sheet(_found(engine, layer))


def steps_data(engine: Planned, layer: str | None = None) -> list[dict[str, Any]]:
    """One flat row for each step, for other programs."""
    return [_data(*row) for row in _found(engine, layer)]


def _sheet(rows: Iterable[tuple[str, LayerPrediction]]) -> Sheet:
    return Sheet(_COLUMNS, tuple(_cells(*row) for row in rows), _KEPT, _FOLDED, _LEFT)


def _found(engine: Planned, layer: str | None) -> list[tuple[str, LayerPrediction]]:
    """The steps whose names are like ``layer``, each with the name of its part."""
    steps = [(name, step) for name, each in _parts(engine) for step in _steps(each)]
    found = [row for row in steps if layer is None or _is_like(row[1].name, layer)]
    if layer is not None and not found:
        there = [step.name for _, step in steps]
        rest = f" and {len(there) - _MOST_NAMED} more" if len(there) > _MOST_NAMED else ""
        raise BadInput(f"no layer is called like {layer!r}; there are {', '.join(there[:_MOST_NAMED])}{rest}")
    return found


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


def _steps(part: _Part) -> tuple[LayerPrediction, ...]:
    if isinstance(part, Engine):
        tensors = part.assignment.tensors
        return tuple(layer_prediction(step, None, tensors, part.facts) for step in part.assignment.steps)
    return (part.prediction if isinstance(part, PlannedEngine) else part).layers


def _sums(part: _Part) -> Iterable[str]:
    if isinstance(part, Engine):
        return sums(part.assignment, part.memory_plan)
    return plan_sentences(part) if isinstance(part, PlannedEngine) else sentences(part)


def _cells(part: str, step: LayerPrediction) -> dict[str, str]:
    time_us, second = step.time_us, step.runner_up
    is_least = time_us is not None and time_us.high == inf and step.known is None
    memory = bytes_text(step.result_bytes + (step.workspace_bytes or 0))
    return {
        "part": part,
        "step": step.name,
        "runs": step.runs,
        "type": step.type,
        "layout": step.layout,
        "µs": _UNKNOWN if time_us is None else f"{'≥' if is_least else ''}{time_us.value:,.1f}",
        "between": _UNKNOWN if time_us is None or step.known is None else interval_text(time_us),
        "memory": _UNKNOWN if time_us is None else memory if step.workspace_bytes is not None else f"≥ {memory}",
        "known": step.known or "",
        "limit": _UNKNOWN if step.limit_us is None else f"{step.limit_us:,.1f}",
        "next best": _UNKNOWN if second is None else f"{second.times:.2f}x {second.id.partition('[')[0]}",
        "why": step.reason,
    }


def _data(part: str, step: LayerPrediction) -> dict[str, Any]:
    time_us, second = step.time_us, step.runner_up
    return {
        "part": part,
        "step": step.name,
        "runs": step.runs,
        "type": step.type,
        "layout": step.layout,
        "time_us": None if time_us is None else time_us.value,
        "low_us": None if time_us is None else time_us.low,
        "high_us": None if time_us is None or time_us.high == inf else time_us.high,
        "result_bytes": step.result_bytes,
        "workspace_bytes": step.workspace_bytes,
        "known": step.known or "",
        "limit_us": step.limit_us,
        "next_best": None if second is None else second.id,
        "next_best_times": None if second is None else second.times,
        "reason": step.reason,
    }
