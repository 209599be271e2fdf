"""A plan that has not been built: steps, predicted times and memory, as data."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from torch import Tensor

from convwright.core.device import DeviceFacts
from convwright.core.finding import Interval
from convwright.core.record import as_record
from convwright.engine.blueprint import Blueprint
from convwright.engine.inspecting.explained import compared
from convwright.engine.network_prediction import OUTSIDE, NetworkPrediction, layer_prediction, sentences
from convwright.engine.planning.assignment import Assignment, Step
from convwright.engine.planning.forecast_times import Basis
from convwright.engine.planning.reasons import FASTEST, UNMEASURED
from convwright.engine.running.memory_report import MemoryReport
from convwright.engine.saving.saved import folder_of, save
from convwright.engine.structure import Structure
from convwright.graph.graph import Graph
from convwright.naming import singular
from convwright.notebook import Lines, text
from convwright.prediction.sums import energy_of, summed

# What a reason says about the best candidate if it was not measured.
_CLAIMS = {
    Basis.PREDICTED: "predicted to be the fastest", Basis.ROUGH: "may be the fastest",
    Basis.LIMIT: "nothing is known to be faster",
}  # fmt: skip


@dataclass(frozen=True, slots=True, eq=False)
class PlannedEngine:
    """A plan of a network for a device on which nothing was run. ``bases`` says what the time of each step rests on.
    ``powers`` are the predicted powers of the steps, None if unknown.

    ``unknown`` names the steps whose workspace or packed weight only the device itself can report; ``memory`` omits
    these. ``constants`` computes the tensors that the steps read besides the inputs.
    """

    assignment: Assignment
    facts: DeviceFacts
    bases: tuple[Basis, ...]
    powers: tuple[Interval | None, ...]
    memory: MemoryReport
    unknown: tuple[str, ...]
    structure: Structure
    graph: Graph
    constants: Callable[[], Mapping[str, Tensor]]

    @property
    def time_us(self) -> Interval:
        """The device time of one run: the sum over all steps. Errors within one algorithm count as fully correlated,
        between algorithms as independent."""
        return summed((_family(step), step.time_us) for step in self.assignment.steps)

    @property
    def prediction(self) -> NetworkPrediction:
        """The predictions for a run in one record."""
        steps, tensors = list(zip(self.assignment.steps, self.bases, strict=True)), self.assignment.tensors
        total, given = self.time_us, sum(tensors[name].nbytes for name in self.assignment.inputs)
        rough_us = sum(step.time_us.value for step, basis in steps if basis in OUTSIDE)
        memory_bytes, watts = self.memory.weights + self.memory.peak + given, self._power_w()
        return NetworkPrediction(
            self.facts.key, total, rough_us / total.value if total.value else 0.0, memory_bytes, watts,
            None if watts is None else energy_of(watts, total),
            tuple(layer_prediction(step, basis, tensors, self.facts) for step, basis in steps), self.unknown,
            self.facts.memory_bytes,
        )  # fmt: skip

    def _power_w(self) -> Interval | None:
        """The mean power of the steps with known power. Their errors count as fully correlated."""
        known = [
            (step.time_us.value, watts) for step, watts in zip(self.assignment.steps, self.powers, strict=True)
            if watts is not None
        ]  # fmt: skip
        known_us = sum(us for us, _ in known)
        if not known_us:
            return None
        return summed(("power", watts.scaled(us / known_us)) for us, watts in known)

    def memory_report(self) -> MemoryReport:
        """The memory that the engine will use. The arena is exact; CUDA's context and pool are unknown until the engine
        runs."""
        return self.memory

    def explain(self) -> str:
        """A table of the steps: candidate, layout, predicted time, what the time rests on, and memory."""
        return Lines(text(self))

    def to_json(self) -> dict[str, Any]:
        """The prediction and each step as strict JSON. Unknown values are None."""
        found: dict[str, Any] = as_record(self.prediction)
        memory = {
            "arena_bytes": self.memory.arena, "outside_bytes": self.memory.outside_peak,
            "weights_bytes": self.memory.weights, "workspace_bytes": self.memory.workspace,
            "unknown": found.pop("unknown"),
        }  # fmt: skip
        steps = [
            {**layer, "operation": step.operation.key}
            for layer, step in zip(found.pop("layers"), self.assignment.steps, strict=True)
        ]
        return {**found, "memory": memory, "steps": steps}

    def save(self, folder: Path | str) -> None:
        """Write the plan, the network and its weights to a folder. ``load(folder, plan_only=True)`` reads it. On the
        device, ``load(folder, on_change="replan")`` plans it again with measured times."""
        made = Blueprint(self.assignment, self.constants(), self.structure, None, self.graph)
        save(
            folder_of(folder), made, self.facts, None, predicted={"bases": self.bases, "powers": as_record(self.powers)}
        )

    def __repr__(self) -> str:
        found = self.time_us
        steps = f"{len(self.assignment.steps)} steps"
        return singular(f"<PlannedEngine: {steps} on {self.facts.key}, {found.value:,.0f} µs>")


def plan_sentences(planned: PlannedEngine) -> Iterator[str]:
    """The totals in words."""
    yield from sentences(planned.prediction)
    yield from compared(planned.assignment)
    yield str(planned.memory.plan)
    yield f"weights: {planned.memory.weights:,} bytes"


def _family(step: Step) -> str:
    """The key of steps with correlated errors: their algorithm, or their PyTorch operator."""
    if step.candidate is None:
        return str(step.operation.key).partition(" ")[0]
    leaf = step.candidate.leaf
    engine = "engine" if leaf.algorithm.startswith("engine-") else leaf.algorithm.partition("-3x")[0]
    return f"{leaf.backend}/{engine}"


def with_bases(bases: tuple[Basis, ...], assignment: Assignment) -> Assignment:
    """The assignment, with reasons that claim no more than predictions can."""
    steps = (
        replace(step, reason=_CLAIMS[basis]) if step.reason in (FASTEST, UNMEASURED) and basis in _CLAIMS else step
        for step, basis in zip(assignment.steps, bases, strict=True)
    )
    return replace(assignment, steps=tuple(steps))
