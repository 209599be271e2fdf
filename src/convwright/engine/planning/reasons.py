"""The reason for each step: a few words, and the runner-up."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from math import inf

from convwright.core.tensor_spec import Layout, TensorSpec
from convwright.engine.planning.assignment import Assignment, RunnerUp, Step
from convwright.engine.planning.ways import Way
from convwright.graph.layouts import layouts_of
from convwright.graph.operations import NO_PROBLEM, NOTHING_RUNS, Foreign, Operation

FASTEST, EARLIER = "the fastest", "the fastest by predictions or earlier measurements"
_ESTIMATED = "by estimate"
UNMEASURED = f"expected to be the fastest {_ESTIMATED}"
# At most so many readers of a copy are named.
_NAMED = 2


def is_estimated(step: Step) -> bool:
    """Whether the step was chosen without measurements."""
    return _ESTIMATED in step.reason


def with_reasons(assignment: Assignment, ways: Iterable[Way], fastest: str = FASTEST) -> Assignment:
    """The assignment with a reason for each step, found by comparison with ``ways``. ``fastest`` is the reason of a
    step with no faster way."""
    by_group: dict[str, list[Way]] = {}
    for way in ways:
        if way.candidate is not None or isinstance(way.operation, NO_PROBLEM):  # only ways whose time is known
            by_group.setdefault(way.group.name, []).append(way)
    readers: dict[str, list[str]] = {}
    for step in assignment.steps:
        for _, name in step.reads:
            readers.setdefault(name, []).append(step.name)
    steps = (_explained(step, by_group.get(step.name, ()), readers, assignment, fastest) for step in assignment.steps)
    return replace(assignment, steps=tuple(steps))


def _explained(
    step: Step, ways: Iterable[Way], readers: Mapping[str, list[str]], assignment: Assignment, fastest: str
) -> Step:
    if not ways:  # copies belong to no group
        return replace(step, reason=_of_copy(step, readers, assignment))
    others = [way for way in ways if way.operation == step.operation and way.candidate not in (step.candidate, None)]
    second = min(others, key=lambda way: way.time_us.value, default=None)
    runner_up = None if second is None or second.candidate is None else RunnerUp(
        second.candidate.id, second.time_us.value / max(step.time_us.value, 1e-9)
    )  # fmt: skip
    return replace(step, runner_up=runner_up, reason=_of_choice(step, ways, fastest))


def _of_choice(step: Step, ways: Iterable[Way], fastest: str) -> str:
    if isinstance(step.operation, NOTHING_RUNS):
        return "nothing runs"
    if isinstance(step.operation, Foreign):
        return "PyTorch's own operator"
    best = min(ways, key=lambda way: way.time_us.value)
    saved_us = step.time_us.value - best.time_us.value
    measured = step.time_us.high < inf
    if saved_us <= 0:
        return fastest if measured else UNMEASURED
    slower, why = f"{saved_us:,.1f} µs slower than", "" if measured else f" {_ESTIMATED}"
    if best.operation == step.operation:
        return f"{slower} the fastest{why}, which needs more memory"
    own, other = (_lies(_output(operation)) for operation in (step.operation, best.operation))
    place = f"in {other}" if own != other else f"reading {_lies(_input(best.operation))}"
    return f"{slower} {place}{why}, but needs fewer copies"


def _of_copy(step: Step, readers: Mapping[str, list[str]], assignment: Assignment) -> str:
    """Which steps read the copy, and in which layout."""
    (name,) = step.writes
    found = [each for each in readers.get(name, ()) if each != step.name]
    if name in assignment.outputs and not found:
        return f"the model returns it in {_lies(assignment.tensors[name])}"
    more = f" and {len(found) - _NAMED} more" if len(found) > _NAMED else ""
    are_several = "read" if len(found) > 1 else "reads"
    place = assignment.slices[name][0] if name in assignment.slices else _lies(assignment.tensors[name])
    return f"{', '.join(found[:_NAMED])}{more} {are_several} it in {place}"


def _output(operation: Operation) -> TensorSpec:
    operands = {str(role): spec for role, spec in operation.operands.items()}
    return operands[str(operation.outputs[-1])]


def _input(operation: Operation) -> TensorSpec:
    return next(spec for role, spec in operation.operands.items() if role not in operation.outputs)


def _lies(spec: TensorSpec) -> str:
    return str(spec.layout if len(layouts_of(spec)) > 1 else Layout.NCHW)
