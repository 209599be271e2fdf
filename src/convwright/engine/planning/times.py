"""The interface through which planning gets the times of candidates."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from math import inf
from typing import Protocol

from convwright.core.candidate import Candidate
from convwright.core.device import DeviceFacts
from convwright.core.finding import Interval
from convwright.core.kinds.problem import Problem
from convwright.core.policy import Objective, Policy, Weights
from convwright.graph.operations import Foreign
from convwright.tuning.trials.search_input import Progress

# A candidate, or None for an operator of PyTorch, and the time of one call.
TimedCandidate = tuple[Candidate | None, Interval]
# The least time of a step that was not measured, so that no plan gets needless steps.
_SOME_US = 1.0


class TimeSource(Protocol):
    """Gives the times of candidates on one device. Planning asks once for each problem and each operator."""

    @property
    def device(self) -> DeviceFacts: ...

    def of_problems(
        self, problems: Sequence[Problem], progress: Progress
    ) -> Iterator[tuple[Problem, tuple[TimedCandidate, ...]]]:
        """Each problem, in any order, with the candidates worth considering, fastest first. A problem that nothing
        computes has none."""
        ...

    def of_operator(self, operation: Foreign) -> Interval | None:
        """The time of an operator that PyTorch computes; None if it cannot run."""
        ...


def at_least(time_us: float) -> Interval:
    """A time known only to be at least this long."""
    time_us = max(time_us, _SOME_US)
    return Interval(time_us, time_us, inf)


def planning_policy(policy: Policy) -> Policy:
    """The policy for a network: weights are constant and packed once, and host time does not count."""
    objective = Objective.DEVICE_TIME if policy.objective is Objective.TIME else policy.objective
    return replace(policy, weights=Weights.CONSTANT, objective=objective)
