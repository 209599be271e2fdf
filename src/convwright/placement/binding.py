"""The limits of a placement: what finishes last, and which limits the objective would improve without."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from time import perf_counter

from convwright.placement.placed import by_instance, makespan
from convwright.placement.placement import SAME, Binding
from convwright.placement.question import Objective, Question
from convwright.placement.solve import OutOfTime, Solved, solve


def binding(question: Question, solved: Solved, *, until: float) -> tuple[Binding, ...]:
    """The instances that finish last, if that counts, and each limit found to bind before the clock reaches ``until``,
    by solving the question without it."""
    found = list(_last(question, solved))
    for what, easier in _easier(question):
        left = until - perf_counter()
        if left <= 0:
            break
        try:
            better = solve(easier, gap=0.0, limit_s=left)
        except OutOfTime:
            break
        if better is not None and better.value < solved.value * (1 - SAME):
            found.append(Binding(what, better.value))
    return tuple(found)


def _last(question: Question, solved: Solved) -> Iterator[Binding]:
    if question.objective is not Objective.MAKESPAN:
        return
    end = makespan(solved.placed)
    for (device, number), ways in sorted(by_instance(solved.placed).items()):
        if sum(way.busy_s for way in ways if not way.share) >= end * (1 - SAME):
            yield Binding(f"device {device}/{number}, which finishes last", None)


def _easier(question: Question) -> Iterator[tuple[str, Question]]:
    """The question without one of its limits, and the limit in words."""
    for place, job in enumerate(question.jobs):
        if job.deadline_s is not None:
            jobs = (*question.jobs[:place], replace(job, deadline_s=None), *question.jobs[place + 1 :])
            yield f"the deadline of job {job.name!r}", replace(question, jobs=jobs)
    for place, device in enumerate(question.devices):
        changes = [
            (f"the memory of device {device.name!r}", replace(device, memory_bytes=2**62)),
            (f"the count of device {device.name!r}", replace(device, count=device.count + 1)),
        ]
        if device.power_cap_w is not None:
            changes.append((f"the power cap of device {device.name!r}", replace(device, power_cap_w=1e18)))
        for what, changed in changes:
            devices = (*question.devices[:place], changed, *question.devices[place + 1 :])
            yield what, replace(question, devices=devices)
    for objective, _ in question.at_most:
        others = tuple(each for each in question.at_most if each[0] is not objective)
        yield f"the limit of {objective}", replace(question, at_most=others)
