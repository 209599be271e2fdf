"""An engine as text: a row for each step, then the totals and their reference points."""

from __future__ import annotations

from collections.abc import Iterator
from math import inf

from convwright.core.device import DeviceFacts
from convwright.core.problem import ConvProblem
from convwright.engine.planning.assignment import Assignment, Step
from convwright.engine.planning.step_text import layouts, table, types, what_runs
from convwright.graph.memory_plan import MemoryPlan
from convwright.prediction.physics import least_us

_HEADINGS = ("step", "runs", "type", "layout", "µs", "limit", "next best", "why")


def explained(assignment: Assignment, device: DeviceFacts, memory: MemoryPlan) -> str:
    """A table of the steps, each with the least time that the device needs, and totals."""
    rows = [_row(step, device) for step in assignment.steps]
    return "\n".join((table(_HEADINGS, rows, numbers=(4, 5)), "", *_sums(assignment), str(memory)))


def _row(step: Step, device: DeviceFacts) -> tuple[str, ...]:
    least = None if step.candidate is None else least_us(step.candidate, device)
    limit = "" if least is None else f"{least:,.1f}"
    time = f"{'' if _is_measured(step) else '≥'}{step.time_us.value:,.1f}"
    second = step.runner_up
    after = "" if second is None else f"{second.times:.2f}x {second.id.partition('[')[0]}"
    return step.name, what_runs(step), types(step), layouts(step), time, limit, after, step.reason


def _is_measured(step: Step) -> bool:
    """Whether the step was timed; otherwise its time is a lower bound."""
    return step.time_us.high < inf


def _sums(assignment: Assignment) -> Iterator[str]:
    copies = sum(step.name.startswith("copy of ") for step in assignment.steps)
    convolutions = sum(isinstance(step.operation, ConvProblem) for step in assignment.steps)
    unmeasured = sum(not _is_measured(step) for step in assignment.steps)
    yield (
        f"{len(assignment.steps)} steps, {convolutions} of them convolutions and {copies} copies: "
        f"{'at least ' if unmeasured else ''}{assignment.steps_us:,.0f} µs"
    )
    if unmeasured:
        yield f"{unmeasured} of them were not measured: ≥ marks the least time that the device needs"
    yield f"modelled: {assignment.modelled_us:,.0f} µs"
    for name, time_us in (("step by step", assignment.greedy_us), ("in one layout", assignment.uniform_us)):
        if time_us is not None:
            yield f"chosen {name}: {time_us:,.0f} µs"
