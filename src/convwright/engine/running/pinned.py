"""Replace steps of an assignment by PyTorch's own calls."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from convwright.core.device import DeviceFacts
from convwright.core.policy import Policy
from convwright.engine.planning.assignment import Assignment, Step
from convwright.engine.running.failure import is_pytorchs
from convwright.tuning.asked import named
from convwright.tuning.search import resolved


def pinned(assignment: Assignment, numbers: Collection[int], device: DeviceFacts) -> Assignment:
    """The same, with PyTorch's call under its current flags in the steps of these numbers. Steps without a candidate
    stay unchanged."""

    def own(number: int, step: Step) -> Step:
        if number not in numbers or step.candidate is None or is_pytorchs(step):
            return step
        problem = step.candidate.problem
        return replace(step, candidate=named("torch/default", problem, device, resolved(Policy(), problem, device)))

    steps = tuple(own(number, step) for number, step in enumerate(assignment.steps))
    return replace(assignment, steps=steps, beside_model=None)
