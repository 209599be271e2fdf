"""The placement of jobs on devices."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any

from convwright.errors import Refused
from convwright.naming import check_above_0, check_not_below_0, one_of
from convwright.option_names import PlacementObjectiveName
from convwright.placement.binding import binding
from convwright.placement.devices import Device
from convwright.placement.estimates import Estimate
from convwright.placement.infeasible import why_infeasible
from convwright.placement.jobs import Job
from convwright.placement.placed import by_instance, cost, energy, latency, makespan, times
from convwright.placement.placement import Assigned, Placement, Run
from convwright.placement.predicted import Model, with_predictions
from convwright.placement.question import Objective, Question, check_question, every
from convwright.placement.sensitivity import doubts, margins
from convwright.placement.solve import OutOfTime, Solved, solve

if TYPE_CHECKING:
    from convwright.store.store import Store
    from convwright.wording.progress import Progress


def place(
    jobs: Iterable[Job],
    devices: Iterable[Device],
    estimates: Iterable[Estimate] = (),
    objective: Objective | PlacementObjectiveName = "makespan",
    *,
    models: Mapping[str, tuple[Any, ...]] | None = None,
    store: Store | Path | str | None = None,
    progress: bool | Progress | None = None,
    at_most: Mapping[str, float] | None = None,
    utilisation: float = 1.0,
    period_s: float = 3600.0,
    gap: float = 0.0,
    limit_s: float = 30.0,
    explain: bool = True,
) -> Placement:
    """Choose devices and batch sizes for jobs so that an objective is least: "makespan", "energy", "latency" (of
    streams) or "cost". ``at_most`` limits others, such as ``{"energy": 5000.0}``.

    A one-off job runs as a whole on one device, and jobs on a device one after another: its input is moved, it runs,
    its results are moved. A stream runs on as few equal devices as its rate needs, each busy with streams for at most
    the share ``utilisation`` of its time; the models of all streams of a device are in its memory together. A device
    serves either streams or one-off jobs. For energy and cost, streams run for ``period_s``.

    ``models`` maps the key of a job to a model, an example of its input and optionally a precision. Missing estimates
    are predicted with it, as in ``predict``, using the findings of the ``store``.

    The search ends when the objective is proven to be within the share ``gap`` of the best, or after ``limit_s``
    seconds. ``explain`` uses the remaining time to find what limits a proven placement, and how far each estimate may
    be wrong.

    >>> from convwright.core.finding import Interval
    >>> jobs = [Job("a", "net", (8,), images=800), Job("b", "net", (8,), images=400)]
    >>> estimates = [Estimate("net", "gpu", 8, Interval(10_000.0, 9_000.0, 11_000.0), 10**9)]
    >>> found = place(jobs, [Device("gpu", 10**10, count=2)], estimates)
    >>> found.makespan_s, [run.end_s for run in found.runs]
    (1.0, [1.0, 0.5])
    """
    jobs, devices = every("jobs", jobs, Job), every("devices", devices, Device)
    modules = {key: Model(*model) for key, model in (models or {}).items()}
    estimates = every("estimates", estimates, Estimate)
    estimates, notes = with_predictions(jobs, devices, estimates, modules, store=store, progress=progress)
    begun = perf_counter()
    limits = tuple((one_of(Objective, "at_most", name), limit) for name, limit in (at_most or {}).items())
    target = one_of(Objective, "objective", objective)
    question = Question(jobs, devices, estimates, target, limits, utilisation, period_s)
    check_question(question)
    check_not_below_0("gap", gap)
    check_above_0("limit_s", limit_s)
    try:
        solved = solve(question, gap=gap, limit_s=limit_s)
    except OutOfTime:
        raise Refused(
            f"no placement of {len(question.jobs)} jobs was found in {limit_s:g} s, and there may be one: allow more "
            "time (`limit_s=`, or --limit)"
        ) from None
    if solved is None:
        raise Refused(why_infeasible(question))
    found = replace(placement_of(question, solved), notes=notes)
    if not explain:
        return found
    if not found.proven:
        return replace(found, binds=binding(question, solved, until=begun))  # no time to solve anything else
    until = begun + limit_s
    return replace(
        found,
        binds=binding(question, solved, until=until),
        margins=margins(question, solved, until=until),
        measure_first=doubts(question, solved, until=until),
    )


def placement_of(question: Question, solved: Solved) -> Placement:
    """The placement of a solution, without solving anything else."""
    placed, by_place = solved.placed, by_instance(solved.placed)
    jobs = {job.name: job for job in question.jobs}
    runs, end = [], makespan(placed)
    for (name, number), ways in sorted(by_place.items()):
        for way, start, done in times(question, ways):
            runs.append(Run(way.job, f"{name}/{number}", way.batch, start, done))
    busy = []
    for device in question.devices:
        for number, instance in enumerate(device.instances):
            ways = by_place.get((device.name, number), [])
            share = sum(way.share or way.busy_s / end for way in ways)
            busy.append((instance, share))
    return Placement(
        question.objective,
        solved.value,
        solved.bound,
        tuple(
            Assigned(jobs[each.way.job], each.way, tuple(f"{name}/{number}" for name, number in each.instances))
            for each in placed
        ),
        tuple(runs),
        tuple(busy),
        end,
        energy(placed),
        cost(question, placed),
        latency(question, placed),
    )
