"""The time of each step, measured inside the engine."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import Any

from convwright import strict_json
from convwright.engine.planning.assignment import Assignment
from convwright.engine.planning.step_text import layouts, table, what_runs


@dataclass(frozen=True, slots=True)
class StepTime:
    """``runs`` is the candidate, PyTorch's operator, or the kind of an operation that runs nothing."""

    name: str
    runs: str
    layouts: str
    problem: str
    time_us: float


@dataclass(frozen=True, slots=True)
class Profile:
    """The steps in run order, each with its median time within whole runs. Printed, it is a table."""

    steps: tuple[StepTime, ...]

    @classmethod
    def of(cls, assignment: Assignment, times_us: Sequence[float]) -> Profile:
        pairs = zip(assignment.steps, times_us, strict=True)
        return cls(tuple(
            StepTime(step.name, what_runs(step), layouts(step), step.operation.key, time_us) for step, time_us in pairs
        ))  # fmt: skip

    @property
    def total_us(self) -> float:
        return sum(step.time_us for step in self.steps)

    def __str__(self) -> str:
        total_us = self.total_us or 1.0
        rows = [
            (each.name, each.runs, each.layouts, f"{each.time_us:,.1f}", f"{100 * each.time_us / total_us:.1f} %")
            for each in self.steps
        ]
        return (
            f"{table(('step', 'runs', 'layout', 'µs', 'share'), rows, numbers=(3, 4))}\n\nall: {self.total_us:,.1f} µs"
        )

    def to_json(self) -> dict[str, Any]:
        steps = [
            {"name": each.name, "runs": each.runs, "layouts": each.layouts, "problem": each.problem,
             "time_us": each.time_us}
            for each in self.steps
        ]  # fmt: skip
        return {"total_us": self.total_us, "steps": steps}

    def write_trace(self, path: Path | str) -> None:
        """Write the steps one after the other as a trace for chrome://tracing or Perfetto."""
        begins = accumulate((each.time_us for each in self.steps), initial=0.0)
        events = [
            {"name": each.name, "ph": "X", "pid": 0, "tid": 0, "ts": begin_us, "dur": each.time_us,
             "args": {"runs": each.runs, "problem": each.problem}}
            for each, begin_us in zip(self.steps, begins, strict=False)
        ]  # fmt: skip
        Path(path).write_text(strict_json.dumps({"traceEvents": events}))
