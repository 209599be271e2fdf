"""The least time in which a device can run the steps of a plan, by its bandwidth and its peak rates."""

from __future__ import annotations

from convwright.core.device import DeviceFacts
from convwright.engine.planning.assignment import Assignment, Step
from convwright.graph.operations import Foreign
from convwright.prediction.physics import least_us


def bound_us(assignment: Assignment, device: DeviceFacts) -> float | None:
    """The sum over the steps, with the limits that ``explain`` shows. None where one of them is not known, as on a CPU,
    whose bandwidth no program can read."""
    each = [_least_us(step, device) for step in assignment.steps]
    known = [least for least in each if least is not None]
    return sum(known) if len(known) == len(each) else None


def _least_us(step: Step, device: DeviceFacts) -> float | None:
    if step.candidate is not None:
        return least_us(step.candidate, device)
    if not isinstance(step.operation, Foreign):
        return 0.0  # a view, or tensors joined where they lie: nothing runs
    moved = sum(min(spec.nbytes, spec.span_bytes) for spec in step.operation.operands.values())
    return moved / device.bandwidth_bytes_per_us if device.bandwidth_bytes_per_us else None
