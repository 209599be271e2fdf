"""Jobs on instances of devices, and the resulting objectives."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from math import inf

from convwright.core.record import Record
from convwright.placement.question import Objective, Question
from convwright.placement.ways import Way

Instance = tuple[str, int]  # a device, and the number of one of its equal copies


@dataclass(frozen=True, slots=True)
class Placed(Record):
    """A job's way, and the instances that it runs on."""

    way: Way
    numbers: tuple[int, ...]

    @property
    def instances(self) -> tuple[Instance, ...]:
        return tuple((self.way.device, number) for number in self.numbers)


def by_instance(placed: Iterable[Placed]) -> dict[Instance, list[Way]]:
    """The ways on each instance in use."""
    found: dict[Instance, list[Way]] = {}
    for each in placed:
        for instance in each.instances:
            found.setdefault(instance, []).append(each.way)
    return found


def makespan(placed: Iterable[Placed]) -> float:
    """Seconds until the last one-off job is done; streams run all the time."""
    return max((sum(way.busy_s for way in ways if not way.share) for ways in by_instance(placed).values()), default=0.0)


def energy(placed: Iterable[Placed]) -> float | None:
    return _sum(each.way.energy_j for each in placed)


def cost(question: Question, placed: Sequence[Placed]) -> float | None:
    prices = {device.name: device.price_per_hour for device in question.devices}
    hours = question.period_s / 3600
    kept = (name for (name, _), ways in by_instance(placed).items() if ways[0].share)
    held = _sum(None if (price := prices[name]) is None else price * hours for name in kept)
    return _sum((held, *(each.way.cost for each in placed)))


def latency(question: Question, placed: Iterable[Placed]) -> float | None:
    """The mean latency over all images of streams; None without streams."""
    weights = latency_weights(question)
    found = [weights[way.job] * way.latency_s for way in (each.way for each in placed) if way.latency_s is not None]
    return sum(found) if found else None


def latency_weights(question: Question) -> dict[str, float]:
    """The share of all images that each stream has."""
    rates = {job.name: job.rate_per_s for job in question.jobs if job.rate_per_s is not None}
    return {name: rate / sum(rates.values()) for name, rate in rates.items()}


def measure(question: Question, placed: Sequence[Placed], objective: Objective) -> float | None:
    """The value of a placement in one objective; None if unknown."""
    if objective is Objective.MAKESPAN:
        return makespan(placed)
    if objective is Objective.ENERGY:
        return energy(placed)
    return cost(question, placed) if objective is Objective.COST else latency(question, placed)


def value_of(question: Question, placed: Sequence[Placed]) -> float:
    """The value of a placement in the objective; 0 for a latency without streams."""
    return measure(question, placed, question.objective) or 0.0


def every_instance(question: Question) -> list[Instance]:
    return [(device.name, number) for device in question.devices for number in range(device.count)]


def in_order(question: Question, ways: Iterable[Way]) -> list[Way]:
    """One-off jobs in the order that meets most deadlines: by deadline."""
    deadlines = {job.name: job.deadline_s or inf for job in question.jobs}
    return sorted((way for way in ways if not way.share), key=lambda way: (deadlines[way.job], way.job))


def times(question: Question, ways: Iterable[Way]) -> Iterator[tuple[Way, float, float]]:
    """Start and end of each one-off job of an instance, in order."""
    now = 0.0
    for way in in_order(question, ways):
        yield way, now, now + way.busy_s
        now += way.busy_s


def _sum(figures: Iterable[float | None]) -> float | None:
    total = 0.0
    for figure in figures:
        if figure is None:
            return None
        total += figure
    return total
