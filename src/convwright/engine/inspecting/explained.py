"""An engine as text: a row for each step, then the totals and their reference points."""

from __future__ import annotations

from collections.abc import Iterator
from math import inf

from convwright.core.device import DeviceFacts
from convwright.core.problem import ConvProblem
from convwright.engine.planning.assignment import Assignment, Step
from convwright.engine.planning.reasons import is_estimated
from convwright.engine.planning.step_text import layouts, table, types, what_runs
from convwright.graph.memory_plan import MemoryPlan
from convwright.measuring.compare import Outcome
from convwright.naming import singular
from convwright.prediction.physics import least_us

_HEADINGS = ("step", "runs", "type", "layout", "µs", "limit", "next best", "why")

# Expected and measured times that differ by this factor, and by so much, show that other work disturbed either.
_DISTURBED, _SOME_US = 3, 1e3


def explained(assignment: Assignment, device: DeviceFacts, memory: MemoryPlan) -> str:
    """A table of the steps, each with the least time that the device needs, and totals. If the times are not
    trustworthy, that comes first."""
    rows = [_row(step, device) for step in assignment.steps]
    parts = *disturbed(assignment), table(_HEADINGS, rows, numbers=(4, 5)), "\n".join(sums(assignment, memory))
    return "\n\n".join(parts)


def sums(assignment: Assignment, memory: MemoryPlan) -> Iterator[str]:
    """The totals of the steps: number, times and memory."""
    yield from _times(assignment)
    yield from _beside_model(assignment)
    yield str(memory)


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


def _times(assignment: Assignment) -> Iterator[str]:
    steps = assignment.steps
    copies = sum(step.name.startswith("copy of ") for step in steps)
    convolutions = sum(isinstance(step.operation, ConvProblem) for step in steps)
    unmeasured = sum(not _is_measured(step) for step in steps)
    kinds = f"{convolutions} convolutions, {copies} {'copy' if copies == 1 else 'copies'}"
    yield singular(f"{len(steps)} steps ({kinds})")
    yield f"the engine: {expected(assignment)} expected, the sum of its steps"
    if unmeasured:
        yield f"not measured: {unmeasured} of {len(steps)}; ≥ marks the least time that the device needs"
        return
    if not _is_timed(assignment):
        yield from compared(assignment)
        return
    yield from compared(assignment, (assignment.modelled_us, "for this plan before its steps were timed in it"))


def _is_timed(assignment: Assignment) -> bool:
    """Whether the steps were timed in the engine."""
    return all(step.time_us.low == step.time_us.high for step in assignment.steps)


def expected(assignment: Assignment) -> str:
    """The time of a run."""
    bound = "" if all(map(_is_measured, assignment.steps)) else "at least "
    return f"{bound}{assignment.steps_us:,.0f} µs"


def compared(assignment: Assignment, *own: tuple[float, str]) -> Iterator[str]:
    """The times that planning expected of simpler choices, after ``own``. What is equal is written once."""
    simpler = (assignment.greedy_us, "if each step is chosen alone"), (assignment.uniform_us, "in one layout")
    said = dict[str, list[str]]()
    for time_us, name in (*own, *simpler):
        if time_us is not None:
            said.setdefault(f"{time_us:,.0f} µs", []).append(name)
    if said:
        each = (f"{time} {' and '.join(names)}" for time, names in said.items())
        yield f"for comparison, planning expected {', '.join(each)}"


def _beside_model(assignment: Assignment) -> Iterator[str]:
    """The times of a call of the engine and of its model, and what to do if the engine is not faster."""
    pair = assignment.beside_model
    if pair is None:
        return
    if isinstance(pair, str):
        yield f"the engine could not be compared with its model: {pair}"
        return
    low, high = 1 / pair.ratio.high, 1 / pair.ratio.low
    said = f"a call takes {pair.after_us.value:,.0f} µs, one of the model {pair.before_us.value:,.0f} µs: "
    ratio = f"{1 / pair.ratio.value:.2f}x as fast ({low:.2f} to {high:.2f}"
    if low < 1 < high:
        ratio = f"no difference can be shown ({low:.2f}x to {high:.2f}x as fast"
    said += f"{ratio}, {pair.rounds} rounds side by side)"
    if pair.unstable is not None:
        said += f"; the times are uncertain: {pair.unstable}"
    elif pair.outcome is Outcome.SLOW:
        said += '; the engine is slower: keep the model, or plan it again with mode="full"'
    yield said


def disturbed(assignment: Assignment) -> Iterator[str]:
    """Why the times and choices of an engine that was timed are not trustworthy; nothing if they are."""
    if not all(map(_is_measured, assignment.steps)) or not _is_timed(assignment):
        return
    estimated = sum(map(is_estimated, assignment.steps))
    low, high = sorted((assignment.modelled_us, assignment.steps_us))
    if estimated:
        why = f" {estimated} of {len(assignment.steps)} steps"
    elif high > _DISTURBED * low and high - low > _SOME_US:
        why = f": planning expected {assignment.modelled_us:,.0f} µs and the steps took {assignment.steps_us:,.0f} µs"
    else:
        return
    yield (
        f"the machine was too busy to measure{why}; stop other work and plan the model again before you trust these "
        "times"
    )
