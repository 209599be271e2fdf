"""A placement: which jobs run on which devices, when, and the resulting objectives."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from convwright.core.record import Record
from convwright.placement.jobs import Job
from convwright.placement.question import Objective
from convwright.placement.ways import Way

SAME = 1e-6  # relative difference of objectives that the solver cannot distinguish


@dataclass(frozen=True, slots=True)
class Assigned(Record):
    """A job, its way, and its instances: one, or several equal ones that share a stream."""

    job: Job
    way: Way
    instances: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Run(Record):
    """A one-off job on an instance, from ``start_s`` to ``end_s``."""

    job: str
    instance: str
    batch: int
    start_s: float
    end_s: float


@dataclass(frozen=True, slots=True)
class Binding(Record):
    """A limit without which the objective would improve to ``value``; None if the limit is only what finishes last."""

    what: str
    value: float | None


@dataclass(frozen=True, slots=True)
class Margin(Record):
    """The factor by which a job may exceed its estimated time before the decision changes: another way of this job is
    better, or the placement becomes infeasible. Infinite if it never changes."""

    job: str
    factor: float
    then: str


@dataclass(frozen=True, slots=True)
class Doubt(Record):
    """A job on a device whose estimate's interval holds times that change the decision. ``gain`` is the most that the
    objective can change."""

    job: str
    device: str
    gain: float


@dataclass(frozen=True, slots=True)
class Placement(Record):
    """The decision for all jobs. No placement has an objective below ``bound``.

    ``utilisation`` is the share of time that an instance is busy: with streams, or with one-off jobs until the
    makespan. ``energy_j`` and ``cost`` are None if an estimate has no power or a device no price, ``latency_s`` if no
    job is a stream. ``binds``, ``margins`` and ``measure_first`` are None if there was no time to find them, or if the
    placement is not proven to be the best. A job missing in ``margins`` had no time left.
    """

    _PROPERTIES: ClassVar = ("gap",)

    objective: Objective
    value: float
    bound: float
    assigned: tuple[Assigned, ...]
    runs: tuple[Run, ...]
    utilisation: tuple[tuple[str, float], ...]
    makespan_s: float
    energy_j: float | None
    cost: float | None
    latency_s: float | None
    binds: tuple[Binding, ...] | None = None
    margins: tuple[Margin, ...] | None = None
    measure_first: tuple[Doubt, ...] | None = None

    @property
    def gap(self) -> float:
        """The most that could be gained, as a share of the objective."""
        return max(0.0, (self.value - self.bound) / self.value) if self.value else 0.0

    @property
    def proven(self) -> bool:
        """Whether no placement is better, within the solver's tolerance."""
        return self.gap <= SAME

    def figure(self, objective: Objective) -> float | None:
        """The value of the placement in an objective."""
        figures = {
            Objective.MAKESPAN: self.makespan_s,
            Objective.ENERGY: self.energy_j,
            Objective.COST: self.cost,
            Objective.LATENCY: self.latency_s,
        }
        return figures[objective]

    def __getitem__(self, job: str) -> Assigned:
        return next(each for each in self.assigned if each.job.name == job)

    def __str__(self) -> str:
        return "\n".join((*self._jobs(), *self._sums(), *self._reasons()))

    def _jobs(self) -> Iterator[str]:
        times = {run.job: f", {run.start_s:.6g} to {run.end_s:.6g} s" for run in self.runs}
        for each in self.assigned:
            latency = "" if each.way.latency_s is None else f", latency {each.way.latency_s:.6g} s without waiting"
            where = f"{', '.join(each.instances)}, batch {each.way.batch}"
            yield f"{each.job.name}: {where}{times.get(each.job.name, '')}{latency}"

    def _sums(self) -> Iterator[str]:
        yield f"{self.objective}: {self.value:.6g}, no placement below {self.bound:.6g} (gap {self.gap:.2%})"
        figures = (
            ("makespan", self.makespan_s, "s"),
            ("energy", self.energy_j, "J"),
            ("cost", self.cost, ""),
            ("latency", self.latency_s, "s"),
        )
        known = (f"{name} {figure:.6g} {unit}".rstrip() for name, figure, unit in figures if figure is not None)
        yield ", ".join(known)
        yield "busy: " + ", ".join(f"{instance} {part:.0%}" for instance, part in self.utilisation)

    def _reasons(self) -> Iterator[str]:
        for limit in self.binds or ():
            without = "" if limit.value is None else f"; without it {self.objective} is {limit.value:.6g}"
            yield f"bound by {limit.what}{without}"
        for margin in self.margins or ():
            yield f"{margin.job} may take {margin.factor:.4g} times as long: {margin.then}"
        for doubt in self.measure_first or ():
            yield f"to measure: {doubt.job} on {doubt.device}, worth {doubt.gain:.4g} at most"
