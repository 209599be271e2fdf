"""The best placement of a question, with a bound: an integer program, and for many jobs a schedule first."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf
from time import perf_counter

from convwright.graph.integer_program import Relaxation
from convwright.placement.local_search import shortened
from convwright.placement.placed import Instance, Placed, by_instance, makespan, measure
from convwright.placement.program import Found, PlacementProgram
from convwright.placement.question import Objective, Question
from convwright.placement.ways import Way, ways_of

# The integer program alone is quicker for fewer columns.
_MANY = 1000
# What of the time goes into a first placement at most, and into its schedule.
_FIRST, _SCHEDULE = 0.3, 0.4
_ROUGH = 0.2  # the gap that is enough for a first placement


@dataclass(frozen=True, slots=True)
class Solved:
    """The best placement that was found, what it comes to, and what no placement comes to less than."""

    placed: tuple[Placed, ...]
    value: float
    bound: float

    @property
    def gap(self) -> float:
        """What could be gained at most, as a part of the value."""
        return max(0.0, (self.value - self.bound) / self.value) if self.value else 0.0


class OutOfTime(Exception):
    """No placement was found in time, nor was it shown that there is none."""


def solve(question: Question, *, gap: float, limit_s: float) -> Solved | None:
    """A placement that is at most ``gap`` of its objective from the best, if that is found in time; None where there is
    none. ``OutOfTime`` where neither is known."""
    ways = {job.name: ways_of(question, job) for job in question.jobs}
    return solved_by(question, ways, gap=gap, limit_s=limit_s) if all(ways.values()) else None


def solved_by(question: Question, ways: Mapping[str, tuple[Way, ...]], *, gap: float, limit_s: float) -> Solved | None:
    """The same where each job runs in one of its ``ways``."""
    begun = perf_counter()
    program = PlacementProgram(question, ways)
    first, bound = None, 0.0
    if len(program.cells) > _MANY and question.objective is Objective.MAKESPAN and not question.at_most:
        relaxed = program.relaxed()
        if relaxed is None:
            return None
        first = _scheduled(question, ways, program, relaxed[0], limit_s=limit_s * _FIRST)
        bound = relaxed[1] if first is None else _makespan_bound(question, ways, relaxed[1], makespan(first), gap)
        if first is not None:
            enough = bound / (1 - min(gap, 0.99))
            left = limit_s - (perf_counter() - begun)
            first = _shorter(question, ways, first, enough=enough, limit_s=left * _SCHEDULE)
            value = makespan(first)
            if value - bound <= max(gap, 1e-9) * value:
                return Solved(first, value, min(bound, value))
            program.look_below(value, relaxed[0])
    found = program.found(gap=gap, limit_s=max(0.1, limit_s - (perf_counter() - begun)))
    return _best(question, first, found, bound)


def _makespan_bound(
    question: Question, ways: Mapping[str, tuple[Way, ...]], low: float, high: float, gap: float
) -> float:
    """The longest time within which not even the relaxed program is done, where it is told so: ``low`` or more."""
    while high - low > max(gap / 10, 1e-4) * high:
        middle = (low + high) / 2
        within = replace(question, at_most=((Objective.MAKESPAN, middle),))
        if PlacementProgram(within, ways).relaxed() is None:
            low = middle
        else:
            high = middle
    return low


def _best(question: Question, first: tuple[Placed, ...] | None, found: Found | None, bound: float) -> Solved | None:
    if found is None:  # no placement is any better than the first
        if first is None:
            return None
        value = makespan(first)
        return Solved(first, value, value)
    known = [(_value(question, each), each) for each in (first, found.placed) if each is not None]
    if not known:
        raise OutOfTime
    value, placed = min(known, key=lambda each: each[0])
    return Solved(placed, value, min(value, max(bound, found.bound)))


def _value(question: Question, placed: tuple[Placed, ...]) -> float:
    return measure(question, placed, question.objective) or 0.0  # what counts is known, but latency without streams


def _scheduled(
    question: Question,
    ways: Mapping[str, tuple[Way, ...]],
    program: PlacementProgram,
    relaxed: Relaxation,
    *,
    limit_s: float,
) -> tuple[Placed, ...] | None:
    """A first placement: the relaxed program rounded, or a rough one of the integer program; None in want of time."""
    rounded = _rounded(question, ways, program, relaxed)
    if rounded is not None:
        return tuple(rounded)
    packed = _streams_packed(question, ways, limit_s=limit_s / 2)
    if packed is not None:
        return packed
    rough = program.found(gap=_ROUGH, limit_s=limit_s / 2)
    return None if rough is None else rough.placed


def _streams_packed(
    question: Question, ways: Mapping[str, tuple[Way, ...]], *, limit_s: float
) -> tuple[Placed, ...] | None:
    """Streams on such devices as one-off jobs can spare, and those where each of them is done soonest, one by one."""
    once = [job for job in question.jobs if not job.is_stream]
    streams = tuple(job for job in question.jobs if job.is_stream)
    packed: tuple[Placed, ...] = ()
    if streams:
        prices = _worth(question, [_quickest(ways[job.name]) for job in once])
        devices = tuple(replace(device, price_per_hour=prices[device.name]) for device in question.devices)
        sparing = replace(question, jobs=streams, devices=devices, objective=Objective.COST, at_most=())
        its_ways = {job.name: tuple(replace(way, cost=0.0) for way in ways[job.name]) for job in streams}
        found = PlacementProgram(sparing, its_ways).found(gap=_ROUGH / 10, limit_s=limit_s)
        if found is None or found.placed is None:
            return None
        own = {replace(way, cost=0.0): way for job in streams for way in ways[job.name]}
        packed = tuple(Placed(own[each.way], each.numbers) for each in found.placed)
    return _listed(question, ways, packed)


def _worth(question: Question, quickest: Sequence[Mapping[str, Way]]) -> dict[str, float]:
    """How many one-off jobs a device does while the quickest for each does all."""
    worth = dict.fromkeys((device.name for device in question.devices), 1e-6)
    for ways in quickest:
        least = min(way.busy_s for way in ways.values())
        for name, way in ways.items():
            worth[name] += least / way.busy_s
    return worth


def _listed(
    question: Question, ways: Mapping[str, tuple[Way, ...]], streams: tuple[Placed, ...]
) -> tuple[Placed, ...] | None:
    """One-off jobs on what streams leave, by their deadlines and the longest first; None where one is late."""
    loads: dict[Instance, float] = dict.fromkeys(_free(question, streams), 0.0)
    once = [job for job in question.jobs if not job.is_stream]
    placed = list(streams)
    for job in sorted(once, key=lambda job: (job.deadline_s or inf, -min(way.busy_s for way in ways[job.name]))):
        quickest = _quickest(ways[job.name])
        ends = [(loads[at] + quickest[at[0]].busy_s, at) for at in loads if at[0] in quickest]
        if not ends or min(ends)[0] > (job.deadline_s or inf):
            return None
        end, at = min(ends)
        loads[at] = end
        placed.append(Placed(quickest[at[0]], (at[1],)))
    return tuple(placed)


def _free(question: Question, streams: Sequence[Placed]) -> list[Instance]:
    held = by_instance(streams)
    every = [(device.name, number) for device in question.devices for number in range(device.count)]
    return [instance for instance in every if instance not in held]


def _shorter(
    question: Question,
    ways: Mapping[str, tuple[Way, ...]],
    first: Sequence[Placed],
    *,
    enough: float,
    limit_s: float,
) -> tuple[Placed, ...]:
    """The same or a shorter schedule of the one-off jobs. Streams stay where they are."""
    streams = [each for each in first if each.way.share]
    once = [each for each in first if not each.way.share]
    deadlines = {job.name: job.deadline_s for job in question.jobs if job.deadline_s is not None and not job.is_stream}
    quickest = {job: _quickest(each) for job, each in ways.items() if not each[0].share}
    short = shortened(quickest, once, _free(question, streams), deadlines, enough=enough, limit_s=limit_s)
    order = {job.name: place for place, job in enumerate(question.jobs)}
    return tuple(sorted((*streams, *short), key=lambda each: order[each.way.job]))


def _quickest(ways: Sequence[Way]) -> dict[str, Way]:
    found: dict[str, Way] = {}
    for way in ways:
        if way.device not in found or way.busy_s < found[way.device].busy_s:
            found[way.device] = way
    return found


def _rounded(
    question: Question, ways: Mapping[str, tuple[Way, ...]], program: PlacementProgram, relaxed: Relaxation
) -> list[Placed] | None:
    """Each job where the relaxed program has most of it; None where there are streams or a deadline is missed."""
    if any(each[0].share for each in ways.values()):
        return None
    most: dict[str, tuple[float, Placed]] = {}
    for (way, (_, number)), column in program.cells.items():
        value = relaxed.values[column]
        if way.job not in most or value > most[way.job][0]:
            most[way.job] = value, Placed(way, (number,))
    placed = [each for _, each in most.values()]
    deadlines = {job.name: job.deadline_s for job in question.jobs if job.deadline_s is not None}
    for each in by_instance(placed).values():
        now = 0.0
        for way in sorted((way for way in each if way.job in deadlines), key=lambda way: deadlines[way.job]):
            now += way.busy_s
            if now > deadlines[way.job]:
                return None
    return placed
