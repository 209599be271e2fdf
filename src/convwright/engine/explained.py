"""What an engine runs and why, as text: a row for each step, then what the whole is held against."""

from __future__ import annotations

from collections.abc import Iterator

from convwright.core.device import DeviceFacts
from convwright.core.problem import ConvProblem
from convwright.core.tensor_spec import TensorSpec
from convwright.engine.assignment import Assignment, Step
from convwright.graph.memory_plan import MemoryPlan
from convwright.prediction.physics import least_us

_HEADINGS = ("step", "runs", "layout", "µs", "limit")


def explained(assignment: Assignment, device: DeviceFacts, memory: MemoryPlan) -> str:
    """A table of the steps, with the least that the device needs for each, and sums."""
    rows = [_HEADINGS, *(_row(step, device) for step in assignment.steps)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(_HEADINGS))]
    lines = [
        "  ".join(cell.ljust(width) if column < 3 else cell.rjust(width)
                  for column, (cell, width) in enumerate(zip(row, widths, strict=True))).rstrip()
        for row in rows
    ]  # fmt: skip
    return "\n".join((*lines, "", *_sums(assignment), *_memory(memory)))


def _row(step: Step, device: DeviceFacts) -> tuple[str, ...]:
    least = None if step.candidate is None else least_us(step.candidate, device)
    runs = step.operation.key.partition(" ")[0] if step.candidate is None else step.candidate.id
    layouts = dict.fromkeys(
        spec.layout for role, spec in step.operation.operands.items() if _is_image(spec) and str(role) != "w"
    )
    return (
        step.name, runs, "→".join(layouts), f"{step.time_us.value:,.1f}", "" if least is None else f"{least:,.1f}"
    )  # fmt: skip


def _is_image(spec: TensorSpec) -> bool:
    return len(spec.shape) > 2


def _sums(assignment: Assignment) -> Iterator[str]:
    copies = sum(step.name.startswith("copy of ") for step in assignment.steps)
    convolutions = sum(isinstance(step.operation, ConvProblem) for step in assignment.steps)
    yield (
        f"{len(assignment.steps)} steps, {convolutions} of them convolutions and {copies} copies: "
        f"{assignment.steps_us:,.0f} µs"
    )
    yield f"as it was modelled: {assignment.modelled_us:,.0f} µs"
    for name, time_us in (("step by step", assignment.greedy_us), ("in one layout", assignment.uniform_us)):
        if time_us is not None:
            yield f"chosen {name}: {time_us:,.0f} µs"


def _memory(plan: MemoryPlan) -> Iterator[str]:
    yield f"arena: {plan.nbytes:,} bytes, at least {plan.lower_bound:,} are alive at once"
