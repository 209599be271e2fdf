"""What happens when a step fails during a run."""

from __future__ import annotations

from enum import StrEnum

from convwright.core.finding import OUT_OF_MEMORY
from convwright.engine.planning.assignment import Step
from convwright.engine.planning.step_text import what_runs
from convwright.errors import ConvwrightError, StepFailed, first_line
from convwright.shortage import OutOfMemory, is_shortage
from convwright.tuning.choose import is_torch


class OnFailure(StrEnum):
    """Whether a failing step raises an error, or is replaced by PyTorch's own call."""

    RAISE = "raise"
    TORCH = "torch"


def is_pytorchs(step: Step) -> bool:
    """Whether PyTorch's own call already computes a step, or nothing runs."""
    return step.candidate is None or is_torch(step.candidate)


def failure(step: Step, number: int, error: Exception) -> ConvwrightError:
    """The error for a failed step, which has this number."""
    what = f"step {step.name} ({what_runs(step)})"
    if is_shortage(error):
        return OutOfMemory(f"{OUT_OF_MEMORY} in {what} of the engine")
    advice = "" if is_pytorchs(step) else f"; engine.pin({step.name!r}) lets PyTorch compute it"
    return StepFailed(f"{what} failed: {first_line(error)}{advice}", number)
