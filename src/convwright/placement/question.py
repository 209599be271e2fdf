"""The complete input of a placement."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import TypeVar

from convwright.errors import BadInput
from convwright.naming import check_above_0
from convwright.placement.devices import Device
from convwright.placement.estimates import Estimate
from convwright.placement.jobs import Job

_Given = TypeVar("_Given", Job, Device, Estimate)
_EXAMPLES: dict[type, str] = {
    Job: 'a Job, such as Job("night", "net", (8,), images=1000)',
    Device: 'a Device with its memory, such as Device("h200", 141 * 10**9)',
    Estimate: 'an Estimate, such as Estimate("net", "h200", 8, Interval(2000.0, 1900.0, 2100.0), 10**9)',
}


class Objective(StrEnum):
    """The quantity to minimise.

    ``MAKESPAN``: seconds until the last one-off job is done. ``ENERGY``: joules of the one-off jobs, and of streams
    within the period. ``LATENCY``: mean seconds from the arrival of a stream's image to its result, without waiting for
    other batches. ``COST``: one-off jobs pay for the time on a device, streams for each of their devices during the
    whole period.
    """

    MAKESPAN = "makespan"
    ENERGY = "energy"
    LATENCY = "latency"
    COST = "cost"


@dataclass(frozen=True, slots=True)
class Question:
    """Jobs, devices and estimates; the objective, and limits of other objectives; the largest share of time that a
    device may be busy with streams, and the seconds that streams run, for energy and cost."""

    jobs: tuple[Job, ...]
    devices: tuple[Device, ...]
    estimates: tuple[Estimate, ...]
    objective: Objective = Objective.MAKESPAN
    at_most: tuple[tuple[Objective, float], ...] = ()
    utilisation: float = 1.0
    period_s: float = 3600.0

    def needs(self, objective: Objective) -> bool:
        """Whether an objective is minimised or limited."""
        return objective is self.objective or objective in dict(self.at_most)

    @property
    def instance_count(self) -> int:
        return sum(device.count for device in self.devices)


def every(argument: str, given: object, kind: type[_Given]) -> tuple[_Given, ...]:
    """The items of an argument, all of one kind.

    >>> every("devices", [Device("h200", 141 * 10**9)], Device)[0].name
    'h200'
    """
    if isinstance(given, str | kind) or not isinstance(given, Iterable):
        raise BadInput(f"`{argument}` must be a list of {kind.__name__}, got {given!r}")
    items = tuple(given)
    for each in items:
        if not isinstance(each, kind):
            raise BadInput(f"`{argument}` must hold {_EXAMPLES[kind]}, got {each!r}")
    return items


def check_question(question: Question) -> None:
    """Refuse a question that is contradictory or lacks what its objective needs."""
    if not question.jobs:
        raise BadInput("a placement needs at least one job, got none")
    if not question.devices:
        raise BadInput("a placement needs at least one device, got none")
    _check_unique("jobs are named", (job.name for job in question.jobs))
    _check_unique("devices are named", (device.name for device in question.devices))
    _check_estimates(question)
    check_above_0("utilisation", question.utilisation)
    if question.utilisation > 1:
        raise BadInput(f"utilisation must be at most 1, got {question.utilisation:g}")
    check_above_0("period_s", question.period_s)
    for objective, limit in question.at_most:
        check_above_0(f"the limit of {objective}", limit)
    if question.needs(Objective.COST):
        for device in question.devices:
            if device.price_per_hour is None:
                raise BadInput(f"cost needs the price_per_hour of every device, and device {device.name!r} has none")
    if question.needs(Objective.LATENCY) and not any(job.is_stream for job in question.jobs):
        raise BadInput("latency needs a stream, and no job has a rate_per_s")
    if question.objective is Objective.MAKESPAN and all(job.is_stream for job in question.jobs):
        raise BadInput("makespan needs a job that runs once, and no job has images")


def _check_estimates(question: Question) -> None:
    names = {device.name for device in question.devices}
    for estimate in question.estimates:
        if estimate.device not in names:
            raise BadInput(f"the estimate of {estimate.key!r} is on device {estimate.device!r}, which is not given")
    told = (f"{each.key} on {each.device} with batch {each.batch}" for each in question.estimates)
    _check_unique("estimates are of", told)


def _check_unique(two: str, names: Iterable[str]) -> None:
    for name, times in Counter(names).items():
        if times > 1:
            raise BadInput(f"two {two} {name!r}")
