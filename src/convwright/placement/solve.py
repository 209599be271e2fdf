"""Find the best placement with a bound: by an integer program; for many jobs, by a schedule first."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf
from time import perf_counter

from convwright.placement.parts import better_in_parts
from convwright.placement.placed import Placed, by_instance, every_instance, makespan, value_of
from convwright.placement.program import Found, PlacementProgram
from convwright.placement.question import Objective, Question
from convwright.placement.ways import Way, ways_of

# With fewer columns the integer program alone is faster.
_MANY = 1000
# Shares of the time: for a first placement, and for the search in parts of what is left. For objectives other than
# makespan the first placement also gives the bound.
_FIRST, _PARTS, _FIRST_OF_SUMS = 0.4, 0.6, 0.7
_ROUGH = 0.02  # the gap when packing streams for a first placement


@dataclass(frozen=True, slots=True)
class Solved:
    """The best placement found, its value, and a lower bound of all values."""

    placed: tuple[Placed, ...]
    value: float
    bound: float

    @property
    def gap(self) -> float:
        """The most that could be gained, as a share of the value."""
        return max(0.0, (self.value - self.bound) / self.value) if self.value else 0.0


class OutOfTime(Exception):
    """No placement was found in time, and none was proven impossible."""


def solve(question: Question, *, gap: float, limit_s: float) -> Solved | None:
    """A placement within ``gap`` of the best, if found in time; None if there is none. Raises ``OutOfTime`` if neither
    is known."""
    ways = {job.name: ways_of(question, job) for job in question.jobs}
    return solved_by(question, ways, gap=gap, limit_s=limit_s) if all(ways.values()) else None


def solved_by(question: Question, ways: Mapping[str, tuple[Way, ...]], *, gap: float, limit_s: float) -> Solved | None:
    """The same with each job limited to its ``ways``."""
    program = PlacementProgram(question, ways)
    if len(program.cells) <= _MANY or question.at_most:
        return _best(question, (), program.found(gap=gap, limit_s=limit_s), 0.0)
    if question.objective is Objective.MAKESPAN:
        return _shortest(question, ways, program, gap=gap, limit_s=limit_s)
    begun = perf_counter()
    found = program.found(gap=gap, limit_s=limit_s * _FIRST_OF_SUMS)
    if found is None or found.placed is None:
        return _best(question, (), found, 0.0)
    left_s = limit_s - (perf_counter() - begun)
    better = better_in_parts(question, ways, found.placed, enough=_enough(found.bound, gap), limit_s=left_s)
    return _best(question, (better,), found, 0.0)


def _enough(bound: float, gap: float) -> float:
    """The largest objective within the gap."""
    return bound / (1 - min(max(gap, 1e-9), 0.99))


def _shortest(
    question: Question,
    ways: Mapping[str, tuple[Way, ...]],
    program: PlacementProgram,
    *,
    gap: float,
    limit_s: float,
) -> Solved | None:
    """The placement of many jobs with the least makespan: a first one, improved in parts, with a bound from relaxed
    programs; then the integer program for a better one."""
    begun = perf_counter()
    relaxed = program.relaxed()
    if relaxed is None:
        return None
    first = _first(question, ways, program, limit_s=limit_s * _FIRST)
    if first is None:
        found = program.found(gap=gap, limit_s=limit_s * (1 - _FIRST))
        return _best(question, (), found, relaxed[1])
    # A long first placement would need many steps for the bound.
    first = better_in_parts(question, ways, first, enough=_enough(relaxed[1], gap), limit_s=limit_s * _PARTS / 4)
    bound = _makespan_bound(question, ways, relaxed[1], makespan(first), gap)
    left_s = limit_s - (perf_counter() - begun)
    better = better_in_parts(question, ways, first, enough=_enough(bound, gap), limit_s=left_s * _PARTS, seed=1)
    value = makespan(better)
    if value <= _enough(bound, gap):
        return Solved(better, value, min(bound, value))
    program.look_below(value, relaxed[0])
    found = program.found(gap=gap, limit_s=max(0.1, limit_s - (perf_counter() - begun)))
    return _best(question, (better,), found, bound)


def _makespan_bound(
    question: Question, ways: Mapping[str, tuple[Way, ...]], low: float, high: float, gap: float
) -> float:
    """A makespan of at least ``low`` that no placement beats: within it the relaxed program has no solution."""
    while high - low > max(gap / 10, 1e-4) * high:
        middle = (low + high) / 2
        within = replace(question, at_most=((Objective.MAKESPAN, middle),))
        if PlacementProgram(within, ways).relaxed() is None:
            low = middle
        else:
            high = middle
    return low


def _best(question: Question, known: Sequence[tuple[Placed, ...]], found: Found | None, bound: float) -> Solved | None:
    """The best of known and found placements; the bound is the higher of both."""
    if found is not None and found.placed is not None:
        known = [*known, found.placed]
    if not known:
        if found is None:
            return None
        raise OutOfTime
    value, placed = min(((value_of(question, each), each) for each in known), key=lambda each: each[0])
    # If the program has no solution, nothing is better than what is known.
    return Solved(placed, value, value if found is None else min(value, max(bound, found.bound)))


def _first(
    question: Question, ways: Mapping[str, tuple[Way, ...]], program: PlacementProgram, *, limit_s: float
) -> tuple[Placed, ...] | None:
    """Any placement: a schedule by rules, or the integer program's first; None if time runs out."""
    packed = _streams_packed(question, ways, limit_s=limit_s / 2)
    if packed is not None:
        return packed
    found = program.found(gap=0.5, limit_s=limit_s / 2)
    return None if found is None else found.placed


def _streams_packed(
    question: Question, ways: Mapping[str, tuple[Way, ...]], *, limit_s: float
) -> tuple[Placed, ...] | None:
    """Streams on devices that one-off jobs can spare, and one-off jobs one by one where each finishes soonest."""
    once = [job for job in question.jobs if not job.is_stream]
    streams = tuple(job for job in question.jobs if job.is_stream)
    packed: tuple[Placed, ...] = ()
    if streams:
        prices = _worth(question, [_quickest(ways[job.name]) for job in once])
        devices = tuple(replace(device, price_per_hour=prices[device.name]) for device in question.devices)
        sparing = replace(question, jobs=streams, devices=devices, objective=Objective.COST, at_most=())
        its_ways = {job.name: tuple(replace(way, cost=0.0) for way in ways[job.name]) for job in streams}
        found = PlacementProgram(sparing, its_ways).found(gap=_ROUGH, limit_s=limit_s / 2)
        if found is None or found.placed is None:
            return None
        enough = _enough(found.bound, _ROUGH)
        tight = better_in_parts(sparing, its_ways, found.placed, enough=enough, limit_s=limit_s / 2)
        own = {replace(way, cost=0.0): way for job in streams for way in ways[job.name]}
        packed = tuple(Placed(own[each.way], each.numbers) for each in tight)
    return _listed(question, ways, packed)


def _worth(question: Question, quickest: Sequence[Mapping[str, Way]]) -> dict[str, float]:
    """How many one-off jobs each device does while the fastest device for each job does all."""
    worth = dict.fromkeys((device.name for device in question.devices), 1e-6)
    for ways in quickest:
        least = min(way.busy_s for way in ways.values())
        for name, way in ways.items():
            worth[name] += least / way.busy_s
    return worth


def _listed(
    question: Question, ways: Mapping[str, tuple[Way, ...]], streams: tuple[Placed, ...]
) -> tuple[Placed, ...] | None:
    """One-off jobs in the gaps that streams leave, by deadline, longest first; None if one is late."""
    held = by_instance(streams)
    loads = {instance: 0.0 for instance in every_instance(question) if instance not in held}
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


def _quickest(ways: Sequence[Way]) -> dict[str, Way]:
    found: dict[str, Way] = {}
    for way in ways:
        if way.device not in found or way.busy_s < found[way.device].busy_s:
            found[way.device] = way
    return found
