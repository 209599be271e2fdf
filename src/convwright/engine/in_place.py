"""Assignments are tried where they run: each step is timed in the network, and the choice is made anew with that."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from torch import Tensor

from convwright.engine.assignment import Assignment
from convwright.engine.costs import Costs
from convwright.engine.engine import Engine
from convwright.engine.planned import Planner

# So many assignments at most are tried. A way that was not tried yet counts as it would be at its best, so that those
# which may win are tried in turn.
_ROUNDS = 6


def fastest_in_place(planner: Planner, build: Callable[[Assignment], Engine], inputs: Sequence[Tensor]) -> Engine:
    """The engine that ran fastest of those that were tried."""
    costs, tried = Costs(), list[tuple[float, Engine]]()
    for _ in range(_ROUNDS):
        assignment = planner.assignment(costs)
        if any(assignment.steps == engine.assignment.steps for _, engine in tried):
            break
        engine = build(assignment)
        times_us = engine.step_times(inputs)
        costs.learn(assignment.steps, times_us)
        tried.append((sum(times_us), engine))
    return min(tried, key=lambda each: each[0])[1]
