"""A placement: which jobs run on which devices, when, and the resulting objectives."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import inf
from typing import ClassVar

from convwright.core.record import Record
from convwright.placement.jobs import Job
from convwright.placement.question import Objective
from convwright.placement.ways import Way

_SEEN = 1.005  # a smaller factor prints as 1
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
    placement is not proven to be the best. A job missing in ``margins`` had no time left. ``notes`` names the devices
    whose predictions are rough.
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
    notes: tuple[str, ...] = ()

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
        times = {run.job: f", from {seconds_text(run.start_s)} to {seconds_text(run.end_s)}" for run in self.runs}
        for each in self.assigned:
            latency = each.way.latency_s
            waits = "" if latency is None else f", latency {seconds_text(latency)} on a free device"
            where = f"{', '.join(each.instances)}, batch {each.way.batch}"
            yield f"{each.job.name}: {where}{times.get(each.job.name, '')}{waits}"

    def _sums(self) -> Iterator[str]:
        least = "proven to be the least" if self.proven else f"at least {self._text(self.bound)} (gap {self.gap:.2%})"
        yield f"{self.objective}: {self._text(self.value)}, {least}"
        others = ((each, self.figure(each)) for each in Objective if each is not self.objective)
        known = [f"{_named(each)} {figure_text(each, figure)}" for each, figure in others if figure is not None]
        if known:
            yield ", ".join(known)
        yield "busy: " + ", ".join(f"{instance} {part:.0%}" for instance, part in self.utilisation)

    def _reasons(self) -> Iterator[str]:
        for limit in self.binds or ():
            easier = "with one more" if limit.what.startswith("the count") else "without it"
            gain = "" if limit.value is None else f": {easier}, {self.objective} is {self._text(limit.value)}"
            yield f"limited by {limit.what}{gain}"
        for margin in self.margins or ():
            yield _margin_text(margin)
        for doubt in self.measure_first or ():
            gain = "it decides whether all jobs fit" if doubt.gain == inf else f"up to {self._text(doubt.gain)} less"
            yield f"measure {doubt.job} on {doubt.device} first: {self.objective} may become {gain}"
        yield from self.notes

    def _text(self, value: float) -> str:
        return figure_text(self.objective, value)


def figure_text(objective: Objective, value: float) -> str:
    """A value of an objective with its unit.

    >>> figure_text(Objective.MAKESPAN, 204.5371), figure_text(Objective.ENERGY, 147525.0)
    ('204.54 s', '147,525 J')
    """
    if objective is Objective.COST:
        return f"{value:.6g}"
    return f"{value:,.6g} J" if objective is Objective.ENERGY else seconds_text(value)


def seconds_text(seconds: float) -> str:
    """A time in a readable unit.

    >>> seconds_text(7.65734e-05), seconds_text(0.0100778), seconds_text(8.31811), seconds_text(0.0)
    ('76.57 µs', '10.08 ms', '8.32 s', '0 s')
    """
    if not seconds:
        return "0 s"
    if seconds < 1e-3:
        return f"{seconds * 1e6:.4g} µs"
    return f"{seconds * 1e3:.4g} ms" if seconds < 1 else f"{seconds:,.2f} s"


def _named(objective: Objective) -> str:
    return "mean latency" if objective is Objective.LATENCY else str(objective)


def _margin_text(margin: Margin) -> str:
    if margin.factor == inf:
        return f"{margin.job}: {margin.then}"
    longer = f"more than {margin.factor:.3g}x its estimated time" if margin.factor >= _SEEN else "longer than estimated"
    return f"if {margin.job} takes {longer}, {margin.then}"
