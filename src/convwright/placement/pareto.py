"""The trade-off curve of two objectives."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from convwright.errors import BadInput, Refused
from convwright.naming import is_whole, one_of
from convwright.placement.devices import Device
from convwright.placement.estimates import Estimate
from convwright.placement.jobs import Job
from convwright.placement.place import place
from convwright.placement.placement import Placement
from convwright.placement.predicted import Model, with_predictions
from convwright.placement.question import Objective, every

if TYPE_CHECKING:
    from convwright.store.store import Store
    from convwright.wording.progress import Progress

# The solver's tolerance is 1e-6 of a limit; a value that was reached must be reachable again.
_ROOM = 1 + 2e-6


def pareto(
    jobs: Iterable[Job],
    devices: Iterable[Device],
    estimates: Iterable[Estimate],
    first: str,
    second: str,
    *,
    points: int = 5,
    models: Mapping[str, tuple[Any, ...]] | None = None,
    store: Store | Path | str | None = None,
    progress: bool | Progress | None = None,
    at_most: Mapping[str, float] | None = None,
    **settings: Any,
) -> tuple[Placement, ...]:
    """Placements of which none is better in both objectives, from the least ``first`` to the least ``second``.

    Between these ends, ``first`` is minimised under limits of ``second`` in equal steps; then ``second`` under the
    ``first`` found. There are at most ``points``, fewer if some coincide. ``models``, ``store``, ``progress`` and
    ``settings`` are options of ``place``. Each point needs two calls of it, each with its own ``limit_s``.
    """
    if not (is_whole(points) and points >= 2):
        raise BadInput(f"points must be a whole number of at least 2, got {points!r}")
    one, other = one_of(Objective, "first", first), one_of(Objective, "second", second)
    if one is other:
        raise BadInput(f"a curve is of two objectives, got {first!r} twice")
    jobs, devices = every("jobs", jobs, Job), every("devices", devices, Device)
    modules = {key: Model(*model) for key, model in (models or {}).items()}
    estimates = every("estimates", estimates, Estimate)
    estimates, notes = with_predictions(jobs, devices, estimates, modules, store=store, progress=progress)
    limits = dict(at_most or {})

    def best(objective: Objective, than: Objective, limit: float | None) -> Placement:
        """Minimise an objective under a limit of another, then minimise that other."""
        within = limits if limit is None else _within(limits, than, limit)
        found = place(jobs, devices, estimates, objective, at_most=within, explain=False, **settings)
        again = _within(within, objective, found.value * _ROOM)
        try:
            return place(jobs, devices, estimates, than, at_most=again, explain=False, **settings)
        except Refused:  # infeasible by less than the solver's tolerance, or out of time
            return found

    ends = best(one, other, None), best(other, one, None)
    least, most = (_figure(each, other) for each in reversed(ends))
    steps = (least + (most - least) * step / (points - 1) for step in range(points - 2, 0, -1))
    found = [ends[0], *(best(one, other, limit) for limit in steps if most > least), ends[1]]
    figures = [(_figure(each, one), _figure(each, other)) for each in found]
    best_ones = (each for number, each in enumerate(found) if not _is_beaten(figures, number))
    return tuple(replace(each, notes=notes) for each in best_ones)


def _within(limits: Mapping[str, float], objective: Objective, limit: float) -> dict[str, float]:
    return {**limits, objective: min(limit, limits.get(objective, limit))}


def _figure(placement: Placement, objective: Objective) -> float:
    figure = placement.figure(objective)
    assert figure is not None  # the placement counted it
    return figure


def _is_beaten(figures: list[tuple[float, float]], place: int) -> bool:
    """Whether another point is at least as good in both; of equal ones the first stays."""
    own = figures[place]
    for index, other in enumerate(figures):
        as_good = all(a <= b * (1 + 1e-9) for a, b in zip(other, own, strict=True))
        same = all(abs(a - b) <= 1e-9 * abs(b) for a, b in zip(other, own, strict=True))
        if index != place and as_good and (not same or index < place):
            return True
    return False
