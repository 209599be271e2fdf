"""A plan that has not been built: steps, predicted times and memory, as data."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from torch import nn

from convwright.core.device import DeviceFacts
from convwright.core.finding import Interval
from convwright.core.record import as_record
from convwright.engine.blueprint import Blueprint
from convwright.engine.inspecting.explained import compared
from convwright.engine.network_prediction import (
    OUTSIDE,
    LayerPrediction,
    NetworkPrediction,
    between,
    power_sentence,
    rough_sentences,
    time_sentence,
)
from convwright.engine.origin import Origin
from convwright.engine.planning.assignment import Assignment, Step
from convwright.engine.planning.forecast_times import Basis
from convwright.engine.planning.reasons import FASTEST, UNMEASURED
from convwright.engine.planning.step_text import layouts, table, types, what_runs
from convwright.engine.running.memory_report import MemoryReport
from convwright.engine.saving.saved import folder_of, save
from convwright.engine.structure import Structure
from convwright.errors import BadInput
from convwright.graph.graph import Graph
from convwright.graph.operations import NOTHING_RUNS
from convwright.notebook import Lines
from convwright.prediction.physics import least_us
from convwright.prediction.sums import energy_of, summed

_HEADINGS = ("step", "runs", "type", "layout", "µs", "between", "known", "limit", "why")
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
    these.
    """

    assignment: Assignment
    facts: DeviceFacts
    bases: tuple[Basis, ...]
    powers: tuple[Interval | None, ...]
    memory: MemoryReport
    unknown: tuple[str, ...]
    structure: Structure
    graph: Graph
    model: nn.Module
    origin: Origin

    @property
    def time_us(self) -> Interval:
        """The device time of one run: the sum over all steps. Errors within one algorithm count as fully correlated,
        between algorithms as independent."""
        return summed((_family(step), step.time_us) for step in self.assignment.steps)

    @property
    def prediction(self) -> NetworkPrediction:
        """The predictions for a run in one record."""
        total, given = self.time_us, sum(self.assignment.tensors[name].nbytes for name in self.assignment.inputs)
        rough_us = sum(
            step.time_us.value for step, basis in zip(self.assignment.steps, self.bases, strict=True)
            if basis in OUTSIDE
        )  # fmt: skip
        memory_bytes, watts = self.memory.weights + self.memory.peak + given, self._power_w()
        energy = None if watts is None else energy_of(watts, total)
        rough_share = rough_us / total.value if total.value else 0.0
        return NetworkPrediction(self.facts.key, total, rough_share, memory_bytes, watts, energy, self._layers())

    def _layers(self) -> tuple[LayerPrediction, ...]:
        return tuple(
            _layer(step, basis, self.assignment) for step, basis in zip(self.assignment.steps, self.bases, strict=True)
        )

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
        """A table of the steps: candidate, layout, predicted time, and what the time rests on."""
        return self._saved().explain()

    def _saved(self) -> SavedPlan:
        return SavedPlan(self.assignment, self.facts, self.bases, tuple(self._sums()))

    def _sums(self) -> Iterator[str]:
        found = self.prediction
        yield f"planned for {self.facts.label}, on which nothing was run: {len(self.assignment.steps)} steps"
        yield time_sentence(found)
        yield from rough_sentences(found)
        yield from compared(self.assignment)
        if found.power_w is not None and found.energy_mj is not None:
            yield power_sentence(found.power_w, found.energy_mj)
        yield str(self.memory.plan)
        yield f"weights: {self.memory.weights:,} bytes; in all {found.memory_bytes:,} bytes"
        if self.unknown:
            yield (
                f"without workspaces or packed weights of {len(self.unknown)} steps, which only the device can report: "
                f"{', '.join(self.unknown)}"
            )

    def to_json(self) -> dict[str, Any]:
        """The prediction and each step as strict JSON. Unknown values are None."""
        steps = [
            {
                "name": step.name, "operation": step.operation.key, "runs": what_runs(step), "layout": layouts(step),
                "type": types(step), "time_us": step.time_us, "basis": basis, "reason": step.reason,
            }
            for step, basis in zip(self.assignment.steps, self.bases, strict=True)
        ]  # fmt: skip
        memory = {
            "arena_bytes": self.memory.arena, "outside_bytes": self.memory.outside_peak,
            "weights_bytes": self.memory.weights, "workspace_bytes": self.memory.workspace,
            "unknown": self.unknown,
        }  # fmt: skip
        totals = as_record(replace(self.prediction, layers=()))
        del totals["layers"]  # the steps say more
        record: dict[str, Any] = as_record({**totals, "memory": memory, "steps": steps})
        return record

    def save(self, folder: Path | str) -> None:
        """Write the plan, the network and its weights to a folder. On the device, ``load(folder, on_change="replan")``
        plans it again with measured times."""
        if any(each.is_meta for each in self.model.state_dict().values()):
            raise BadInput(
                "the model has no weights (its device is meta), and a folder holds them: plan it with weights"
            )
        network = self.origin.network(self.model)
        made = Blueprint(self.assignment, network.constants, self.structure, None, self.graph)
        known = {"bases": self.bases, "sums": self._saved().sums}
        save(folder_of(folder), made, self.facts, None, predicted=known)

    def __repr__(self) -> str:
        found = self.time_us
        return f"<PlannedEngine: {len(self.assignment.steps)} steps on {self.facts.key}, {found.value:,.0f} µs>"


@dataclass(frozen=True, slots=True, eq=False)
class SavedPlan:
    """What a folder says of a plan that was only predicted. ``sums`` are its totals in words."""

    assignment: Assignment
    facts: DeviceFacts
    bases: tuple[Basis, ...]
    sums: tuple[str, ...]

    def explain(self) -> str:
        """The table of steps that the plan printed."""
        rows = [_row(step, basis, self.facts) for step, basis in zip(self.assignment.steps, self.bases, strict=True)]
        return Lines("\n".join((table(_HEADINGS, rows, numbers=(4, 5, 7)), "", *self.sums)))


def _row(step: Step, basis: Basis, device: DeviceFacts) -> tuple[str, ...]:
    least = None if step.candidate is None else least_us(step.candidate, device)
    nothing = isinstance(step.operation, NOTHING_RUNS)
    return (
        step.name, what_runs(step), types(step), layouts(step), "" if nothing else f"{step.time_us.value:,.1f}",
        "" if nothing else between(step.time_us), basis, "" if least is None else f"{least:,.1f}",
        "" if nothing else step.reason,
    )  # fmt: skip


def _layer(step: Step, basis: Basis, assignment: Assignment) -> LayerPrediction:
    nothing = isinstance(step.operation, NOTHING_RUNS)
    nbytes = sum(assignment.tensors[name].nbytes for name in step.writes)
    workspace = step.candidate.workspace_bytes if step.candidate is not None else 0 if nothing else None
    return LayerPrediction(
        step.name, what_runs(step), None if nothing else step.time_us, basis, 0 if nothing else nbytes, workspace
    )


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
