"""Improve a placement of many jobs in parts: an integer program for the jobs of a few instances at a time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from random import Random
from time import perf_counter

from convwright.placement.placed import Instance, Placed, by_instance, every_instance, value_of
from convwright.placement.program import PlacementProgram
from convwright.placement.question import Objective, Question
from convwright.placement.ways import Way

_PART_S = 1.5  # time limit of a part
_QUICK_S = 0.3  # a part that took less without an improvement was too small
_GAP = 0.002
_LESS = 1 - 1e-4  # the least improvement worth a change


def better_in_parts(
    question: Question,
    ways: Mapping[str, tuple[Way, ...]],
    placed: Sequence[Placed],
    *,
    enough: float,
    limit_s: float,
    seed: int = 0,
) -> tuple[Placed, ...]:
    """``placed``, or a placement with a better value of the only limited objective. The search stops at ``enough``.

    Each part has random instances and, for a makespan, the one that finishes last. More instances allow larger
    improvements but take longer, so their number follows the times of earlier parts.
    """
    until, random = perf_counter() + limit_s, Random(seed)
    best, size, instances = tuple(placed), 3, every_instance(question)
    while value_of(question, best) > enough and (left_s := until - perf_counter()) > 0.05:
        part = _part(question, best, instances, size, random)
        begun = perf_counter()
        changed = _placed_anew(question, ways, best, part, limit_s=min(_PART_S, left_s))
        took_s = perf_counter() - begun
        if took_s > 0.9 * _PART_S:
            size = max(2, size - 1)
        elif changed is None and took_s < _QUICK_S:
            if len(part) == len(instances):  # nothing is better, up to the gap of parts
                break
            size += 1
        best = best if changed is None else changed
    return best


def _part(
    question: Question, placed: Sequence[Placed], instances: Sequence[Instance], size: int, random: Random
) -> set[Instance]:
    """Instances with all others that share a stream with one of them."""
    part = set(random.sample(instances, min(size, len(instances))))
    if question.objective is Objective.MAKESPAN:
        on = by_instance(placed)
        part.add(max(instances, key=lambda each: sum(way.busy_s for way in on.get(each, ()) if not way.share)))
    shared = [set(each.instances) for each in placed if len(each.numbers) > 1]
    while more := [each for each in shared if each & part and not each <= part]:
        part.update(*more)
    return part


def _placed_anew(
    question: Question,
    ways: Mapping[str, tuple[Way, ...]],
    placed: tuple[Placed, ...],
    part: set[Instance],
    *,
    limit_s: float,
) -> tuple[Placed, ...] | None:
    """The jobs of a part of the instances, placed again among these; None if that is no better."""
    inside = [each for each in placed if each.instances[0] in part]
    if not inside:
        return None
    numbers: dict[str, list[int]] = {}
    for name, number in sorted(part):
        numbers.setdefault(name, []).append(number)
    free = {each.way.job for each in inside}
    jobs = tuple(job for job in question.jobs if job.name in free)
    devices = tuple(
        replace(device, count=len(numbers[device.name])) for device in question.devices if device.name in numbers
    )
    smaller = replace(question, jobs=jobs, devices=devices)
    before = value_of(smaller, inside)
    if question.objective is Objective.MAKESPAN:
        smaller = replace(smaller, at_most=((Objective.MAKESPAN, before * _LESS),))
    own = {
        job.name: tuple(way for way in ways[job.name] if way.instances <= len(numbers.get(way.device, ())))
        for job in jobs
    }
    found = PlacementProgram(smaller, own).found(gap=_GAP, limit_s=limit_s)
    if found is None or found.placed is None or value_of(smaller, found.placed) > before * _LESS:
        return None
    anew = {
        each.way.job: Placed(each.way, tuple(numbers[each.way.device][number] for number in each.numbers))
        for each in found.placed
    }
    return tuple(anew.get(each.way.job, each) for each in placed)
