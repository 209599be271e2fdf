"""A kernel that a user registered: the problems that it supports, and its functions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from convwright.core.device import DeviceFacts
from convwright.core.direction import Role
from convwright.core.kinds.problem import Problem
from convwright.core.tensor_spec import Layout, TensorSpec, dense_strides, same_order
from convwright.errors import in_words

# Called with operands by name.
Compute = Callable[..., Any]


@dataclass(frozen=True, slots=True, eq=False)
class UserKernel:
    """``run`` takes a problem and returns the function that computes it. ``serves`` says whether the kernel supports a
    problem. ``layouts`` are the layouts that operands may have; empty if any strides are supported. ``prepare`` packs a
    weight for a problem."""

    name: str
    kind: str
    version: str
    run: Callable[[Any], Compute]
    serves: Callable[[Any], bool | str]
    device: str | None
    layouts: tuple[Layout, ...]
    writes_out: bool
    workspace_bytes: int | Callable[[Any], int]
    deterministic: bool
    prepare: Callable[[Any, Any], Any] | None = None

    def why_not(self, problem: Problem, device: DeviceFacts) -> str | None:
        """Why it cannot compute ``problem`` on ``device``; None if it can."""
        if not device.present:
            return f"needs a device of this machine, got {device.name}"
        if self.device not in (None, device.kind):
            return f"runs only on {self.device}, got {device.name} ({device.kind})"
        if not self.writes_out and (len(problem.outputs) > 1 or Role.BEFORE in problem.operands):
            return "returns a new tensor, but this problem must write to its given outputs"
        return self._layout_refused(problem) or self._answer(problem)

    def _layout_refused(self, problem: Problem) -> str | None:
        for role, spec in problem.operands.items() if self.layouts else ():
            if not any(_lies_in(layout, spec) for layout in self.layouts):
                return f"needs operands in {' or '.join(self.layouts)}, got strides {spec.strides} of `{role}`"
        return None

    def _answer(self, problem: Problem) -> str | None:
        try:
            answer = self.serves(problem)
        except Exception as error:  # a user's function may raise anything
            return f"its `serves` raised {in_words(error)}"
        if isinstance(answer, bool):
            return None if answer else "does not support this problem"
        return (
            answer if isinstance(answer, str) else f"its `serves` must return True, False or a reason, got {answer!r}"
        )


def _lies_in(layout: Layout, spec: TensorSpec) -> bool:
    return same_order(spec.shape, spec.strides, dense_strides(spec.shape, layout))
