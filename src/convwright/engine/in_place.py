"""Assignments are tried where they run: each step is timed in the network, and the choice is made anew with that."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from torch import Tensor

from convwright.engine.engine import Engine
from convwright.engine.planning.assignment import Assignment, Step
from convwright.engine.planning.costs import Costs
from convwright.engine.planning.planned import Planner

# So many assignments at most are tried. A way that was not tried yet counts as it would be at its best, so that those
# which may win are tried in turn, until the best of them all would gain no more than this.
_ROUNDS, _GAIN = 6, 0.01


def fastest_in_place(planner: Planner, build: Callable[[Assignment], Engine], inputs: Sequence[Tensor]) -> Engine:
    """The engine that ran fastest of those that were tried, with the times of its steps in it."""
    costs, tried = Costs(), list[tuple[Step, ...]]()
    fastest: Engine | None = None
    for _ in range(_ROUNDS):
        planned = planner.assignment(costs)
        if planned.steps in tried or (
            fastest is not None and planned.modelled_us > (1 - _GAIN) * fastest.assignment.steps_us
        ):
            break
        tried.append(planned.steps)
        engine = build(planned)
        times_us = engine.step_times(inputs)
        costs.learn(planned.steps, times_us)
        engine.assignment = planned.taking(times_us)
        if fastest is None or engine.assignment.steps_us < fastest.assignment.steps_us:
            fastest = engine
    assert fastest is not None
    return fastest
