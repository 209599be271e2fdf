"""A kernel that a user has registered: what it serves, and the functions that compute it."""

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
    """``run`` takes a problem and gives what computes it; ``serves`` says of a problem whether it can. ``layouts`` are
    those in which operands may lie, none where any strides will do; ``prepare`` packs a weight for a problem."""

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
        """Why it cannot compute ``problem`` on ``device``; None where it can."""
        if not device.present:
            return f"runs where it is registered, not on {device.name}"
        if self.device not in (None, device.kind):
            return f"runs on {self.device}, this is {device.name} ({device.kind})"
        if not self.writes_out and (len(problem.outputs) > 1 or Role.BEFORE in problem.operands):
            return "returns its result, and this problem has to be written to its outputs"
        return self._layout_refused(problem) or self._answer(problem)

    def _layout_refused(self, problem: Problem) -> str | None:
        for role, spec in problem.operands.items() if self.layouts else ():
            if not any(_lies_in(layout, spec) for layout in self.layouts):
                return f"takes {' and '.join(self.layouts)}, and `{role}` has strides {spec.strides}"
        return None

    def _answer(self, problem: Problem) -> str | None:
        try:
            answer = self.serves(problem)
        except Exception as error:  # whatever a user's function raises
            return f"its `serves` raised {in_words(error)}"
        if isinstance(answer, bool):
            return None if answer else "does not serve this problem"
        return (
            answer if isinstance(answer, str) else f"its `serves` must return True, False or a reason, got {answer!r}"
        )


def _lies_in(layout: Layout, spec: TensorSpec) -> bool:
    return same_order(spec.shape, spec.strides, dense_strides(spec.shape, layout))
