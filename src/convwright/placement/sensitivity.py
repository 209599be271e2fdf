"""How far estimates may be wrong before a decision changes, and which are worth measuring."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from math import inf
from time import perf_counter

from convwright.core.finding import Interval
from convwright.placement.estimates import Estimate
from convwright.placement.jobs import Job
from convwright.placement.placed import Placed, by_instance, in_order, latency_weights, value_of
from convwright.placement.placement import SAME, Doubt, Margin
from convwright.placement.question import Objective, Question
from convwright.placement.solve import OutOfTime, Solved, solved_by
from convwright.placement.ways import Way, all_ways, ways_of


def margins(question: Question, solved: Solved, *, until: float) -> tuple[Margin, ...]:
    """The margin of each job, as far as time allows until the clock reaches ``until``.

    A job's alternatives do not depend on the estimate of its chosen way. So each margin needs one solution of the
    question without that way: the decision stays as long as the present placement is feasible and no worse.
    """
    ways = {job.name: ways_of(question, job) for job in question.jobs}
    found = []
    for each in solved.placed:
        if perf_counter() >= until:
            break
        try:
            found.append(_margin(question, solved, ways, each, until - perf_counter()))
        except OutOfTime:
            break
    return tuple(found)


def _margin(
    question: Question, solved: Solved, ways: Mapping[str, tuple[Way, ...]], each: Placed, limit_s: float
) -> Margin:
    job = each.way.job
    # Not from `ways`: a way that the chosen one dominates may be the next best.
    others = ways_of(question, next(one for one in question.jobs if one.name == job), but=each.way)
    other = solved_by(question, {**ways, job: others}, gap=0.0, limit_s=limit_s) if others else None
    if other is not None and other.value - other.bound > SAME * other.value:
        raise OutOfTime
    limits = [*_limits(question, solved.placed, each)]
    if other is not None:
        instead = next(placed.way for placed in other.placed if placed.way.job == job)
        words = f"device {instead.device} with batch {instead.batch} is better"
        limits.append((_until_worse(question, solved.placed, each, other.value), words))
    factor, then = min(limits, default=(inf, "nothing is better, however long it takes"))
    if factor == inf:
        then = "nothing is better, however long it takes"
    return Margin(job, max(1.0, factor), then)


def _limits(question: Question, placed: Sequence[Placed], each: Placed) -> Iterator[tuple[float, str]]:
    """The factors by which a job's run may grow before the placement becomes infeasible, and why."""
    way, jobs = each.way, {job.name: job for job in question.jobs}
    deadline = jobs[way.job].deadline_s
    if way.share:
        ways_on = by_instance(placed)
        share = way.share * way.run_s / way.busy_s
        for instance in each.instances:
            spare = question.utilisation - sum(other.share for other in ways_on[instance])
            yield 1 + max(0.0, spare) / share, f"{instance[0]}/{instance[1]} is too slow for its streams"
        if deadline is not None and way.latency_s is not None:
            yield 1 + (deadline - way.latency_s) / way.run_s, "it misses its deadline"
    else:
        yield from _deadlines_missed(jobs, in_order(question, by_instance(placed)[each.instances[0]]), way)
    for objective, limit in question.at_most:
        limited = replace(question, objective=objective)
        yield _until_worse(limited, placed, each, limit), f"{objective} is above {limit:g}"


def _deadlines_missed(jobs: Mapping[str, Job], order: Sequence[Way], way: Way) -> Iterator[tuple[float, str]]:
    """Factors for deadlines: the job delays itself and all that follow on its instance."""
    now, late = 0.0, False
    for other in order:
        now, late = now + other.busy_s, late or other == way
        deadline = jobs[other.job].deadline_s
        if late and deadline is not None:
            yield 1 + (deadline - now) / way.run_s, f"{other.job} misses its deadline"


def _until_worse(question: Question, placed: Sequence[Placed], each: Placed, value: float) -> float:
    """The factor by which a job's run may grow before the objective exceeds ``value``."""
    way = each.way
    if question.objective is Objective.MAKESPAN:
        if way.share:
            return inf
        slope, now = way.run_s, sum(other.busy_s for other in by_instance(placed)[each.instances[0]])
    else:
        slope = _slope(question, way)
        now = value_of(question, placed)
    return 1 + max(0.0, value - now) / slope if slope else inf


def _slope(question: Question, way: Way) -> float:
    """The increase of a sum objective if a job's run takes twice as long."""
    if question.objective is Objective.ENERGY:
        return way.energy_j or 0.0
    if question.objective is Objective.LATENCY:
        return 0.0 if way.latency_s is None else latency_weights(question)[way.job] * way.run_s
    return 0.0 if way.share else (way.cost or 0.0) * way.run_s / way.busy_s


def doubts(question: Question, solved: Solved, *, until: float) -> tuple[Doubt, ...] | None:
    """Each job on each device whose estimate decides: within its interval, the chosen way may be slow enough to lose,
    or another fast enough to win. None if there is no time to examine all."""
    found = []
    chosen = {each.way.job: each for each in solved.placed}
    for job in question.jobs:
        for device in dict.fromkeys(way.device for way in all_ways(question, job)):
            if perf_counter() >= until:
                return None
            try:
                gain = _gain(question, solved, job, device, chosen[job.name], until - perf_counter())
            except OutOfTime:
                return None
            if gain > SAME * solved.value:
                found.append(Doubt(job.name, device, gain))
    return tuple(sorted(found, key=lambda doubt: (-doubt.gain, doubt.job, doubt.device)))


def _gain(question: Question, solved: Solved, job: Job, device: str, chosen: Placed, limit_s: float) -> float:
    """How much worse the placement is than the best one at the unfavourable end of a job's intervals on a device: the
    high end if the job runs there, the low end if not."""
    here = chosen.way.device == device
    ended = _ended(question, job, device, high=here)
    ways = {each.name: ways_of(ended if each is job else question, each) for each in question.jobs}
    if not here:
        ways[job.name] = tuple(way for way in ways[job.name] if way.device == device)
        value = solved.value
    else:
        value = _grown(question, solved, chosen, job, device)
    if not ways[job.name]:
        return inf if here else 0.0
    best = solved_by(question, ways, gap=0.0, limit_s=limit_s)
    if best is None:
        return inf if here else 0.0
    if best.value - best.bound > SAME * best.value:
        raise OutOfTime
    return max(0.0, value - best.value)


def _grown(question: Question, solved: Solved, chosen: Placed, job: Job, device: str) -> float:
    """The objective of the placement with the chosen estimate at its high end; infinite if it becomes infeasible."""
    factor = max(
        each.time_us.high / each.time_us.value
        for each in question.estimates
        if (each.key, each.device, each.batch) == (job.key, device, chosen.way.batch)
    )
    if any(limit < factor for limit, _ in _limits(question, solved.placed, chosen)):
        return inf
    if question.objective is Objective.MAKESPAN:
        load = sum(way.busy_s for way in by_instance(solved.placed)[chosen.instances[0]] if not way.share)
        grown = 0.0 if chosen.way.share else load + (factor - 1) * chosen.way.run_s
        return max(solved.value, grown)
    return solved.value + (factor - 1) * _slope(question, chosen.way)


def _ended(question: Question, job: Job, device: str, *, high: bool) -> Question:
    def at_end(each: Estimate) -> Estimate:
        if (each.key, each.device) != (job.key, device):
            return each
        end = each.time_us.high if high else each.time_us.low
        return replace(each, time_us=Interval(end, end, end))

    return replace(question, estimates=tuple(map(at_end, question.estimates)))
