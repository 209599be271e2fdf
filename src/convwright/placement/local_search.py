"""A short schedule of many one-off jobs: moves and swaps off the instance that is done last."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf
from random import Random
from time import perf_counter

from convwright.placement.placed import Instance, Placed
from convwright.placement.ways import Way

_KICK = 4  # jobs that are moved at random where no move is any better
_BETTER = 1 - 1e-9  # a move that gains less is none


@dataclass(slots=True)
class Schedule:
    """Jobs on instances. ``ways`` are the quickest of each job on each device."""

    ways: Mapping[str, Mapping[str, Way]]
    deadlines: Mapping[str, float]
    at: dict[str, Instance] = field(default_factory=dict)
    jobs: dict[Instance, set[str]] = field(default_factory=dict)
    loads: dict[Instance, float] = field(default_factory=dict)

    def put(self, job: str, instance: Instance) -> None:
        self.take(job)
        self.at[job] = instance
        self.jobs[instance].add(job)
        self.loads[instance] += self.time(job, instance)

    def take(self, job: str) -> None:
        before = self.at.pop(job, None)
        if before is not None:
            self.jobs[before].remove(job)
            # Added up anew, since what is subtracted leaves roundings.
            self.loads[before] = sum(self.time(each, before) for each in sorted(self.jobs[before]))

    def time(self, job: str, instance: Instance) -> float:
        """Infinite where the job does not run there."""
        way = self.ways[job].get(instance[0])
        return inf if way is None else way.busy_s

    @property
    def makespan(self) -> float:
        return max(self.loads.values())

    def on_time(self, instance: Instance, *, leaving: str | None = None, coming: str | None = None) -> bool:
        """Whether an instance meets its deadlines where one job leaves and another comes."""
        jobs = (self.jobs[instance] - {leaving}) | ({coming} if coming is not None else set())
        due = sorted((self.deadlines[job], self.time(job, instance)) for job in jobs if job in self.deadlines)
        now = 0.0
        for deadline, time in due:
            now += time
            if now > deadline:
                return False
        return True


def shortened(
    ways: Mapping[str, Mapping[str, Way]],
    placed: Sequence[Placed],
    instances: Sequence[Instance],
    deadlines: Mapping[str, float],
    *,
    enough: float,
    limit_s: float,
    seed: int = 0,
) -> list[Placed]:
    """``placed`` or a shorter schedule of the same jobs on the ``instances``; the search ends at ``enough`` seconds of
    makespan. Each job keeps its deadline where it does in ``placed``."""
    schedule = Schedule(ways, deadlines, {}, {each: set() for each in instances}, dict.fromkeys(instances, 0.0))
    for each in placed:
        schedule.put(each.way.job, each.instances[0])
    begun, random = perf_counter(), Random(seed)
    _descend(schedule)
    best, kept = schedule.makespan, dict(schedule.at)
    while best > enough and perf_counter() - begun < limit_s:
        _kick(schedule, random)
        _descend(schedule)
        if schedule.makespan < best * _BETTER:
            best, kept = schedule.makespan, dict(schedule.at)
        elif schedule.makespan > best * 1.02:  # too far off to come back from
            for job, instance in kept.items():
                if schedule.at[job] != instance:
                    schedule.put(job, instance)
    return [Placed(ways[job][instance[0]], (instance[1],)) for job, instance in kept.items()]


def _descend(schedule: Schedule) -> None:
    """Take the best move or swap until none makes the instance that is done last end any sooner."""
    while _step(schedule, _moves(schedule)) or _step(schedule, _swaps(schedule)):
        pass


_Change = tuple[float, tuple[tuple[str, Instance], ...]]  # when the instances of it are done, and who goes where


def _step(schedule: Schedule, changes: Iterator[_Change]) -> bool:
    most = schedule.makespan * _BETTER
    for done, puts in sorted(change for change in changes if change[0] < most):
        del done
        if _allowed(schedule, puts):
            for job, instance in puts:
                schedule.put(job, instance)
            return True
    return False


def _allowed(schedule: Schedule, puts: Sequence[tuple[str, Instance]]) -> bool:
    if not schedule.deadlines:
        return True
    if len(puts) == 1:
        return schedule.on_time(puts[0][1], coming=puts[0][0])
    (first, there), (second, here) = puts
    return schedule.on_time(there, leaving=second, coming=first) and schedule.on_time(
        here, leaving=first, coming=second
    )


def _last(schedule: Schedule) -> Instance:
    return max(schedule.loads, key=lambda instance: (schedule.loads[instance], instance))


def _moves(schedule: Schedule) -> Iterator[_Change]:
    last = _last(schedule)
    for job in sorted(schedule.jobs[last]):
        left = schedule.loads[last] - schedule.time(job, last)
        for instance, load in schedule.loads.items():
            if instance != last:
                yield max(left, load + schedule.time(job, instance)), ((job, instance),)


def _swaps(schedule: Schedule) -> Iterator[_Change]:
    last = _last(schedule)
    for job in sorted(schedule.jobs[last]):
        left = schedule.loads[last] - schedule.time(job, last)
        for instance, load in schedule.loads.items():
            coming = schedule.time(job, instance)
            if instance == last or coming == inf:
                continue
            for other in schedule.jobs[instance]:
                here, there = left + schedule.time(other, last), load - schedule.time(other, instance) + coming
                yield max(here, there), ((job, instance), (other, last))


def _kick(schedule: Schedule, random: Random) -> None:
    """Move some jobs to where they are allowed, whatever that costs."""
    jobs, instances = sorted(schedule.at), sorted(schedule.loads)
    for job in random.sample(jobs, min(_KICK, len(jobs))):
        instance = random.choice(instances)
        allowed = schedule.time(job, instance) < inf and instance != schedule.at[job]
        if allowed and (not schedule.deadlines or schedule.on_time(instance, coming=job)):
            schedule.put(job, instance)
