"""Where the times of candidates come from, as planning asks for them: searches, predictions, a table."""

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

# A candidate and the time of one call. An operator of PyTorch's is no candidate.
TimedCandidate = tuple[Candidate | None, Interval]
# A step that was not measured counts as this at least, so that no plan has needless ones.
_SOME_US = 1.0


class TimeSource(Protocol):
    """Says how long candidates take on one device. Each problem and each operator is asked for once."""

    @property
    def device(self) -> DeviceFacts: ...

    def of_problems(
        self, problems: Sequence[Problem], progress: Progress
    ) -> Iterator[tuple[Problem, tuple[TimedCandidate, ...]]]:
        """Each problem, in any order, with the candidates that are worth a way in a plan. The fastest comes first; a
        problem that nothing computes has none."""
        ...

    def of_operator(self, operation: Foreign) -> Interval | None:
        """The time of an operator that stays PyTorch's; None where it cannot be computed."""
        ...


def at_least(time_us: float) -> Interval:
    """The time of what was not measured: so much, or more."""
    time_us = max(time_us, _SOME_US)
    return Interval(time_us, time_us, inf)


def planning_policy(policy: Policy) -> Policy:
    """The policy for a network whose weights stay: they are packed once, and nobody waits for the host."""
    objective = Objective.DEVICE_TIME if policy.objective is Objective.TIME else policy.objective
    return replace(policy, weights=Weights.CONSTANT, objective=objective)
