"""Candidates → findings, in one of the two ways of searching."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from convwright.core.candidate import Candidate
from convwright.core.device import DeviceFacts
from convwright.core.finding import Finding
from convwright.core.kinds.problem import Problem
from convwright.core.policy import Policy
from convwright.settings import Mode
from convwright.tuning.budget import Budget
from convwright.tuning.trials.contest import NO_HOOKS, Contest, Hooks
from convwright.tuning.trials.full import full
from convwright.tuning.trials.quick import quick


def measure_candidates(
    candidates: Iterable[Candidate],
    baseline: Candidate | None,
    known: Mapping[str, Finding],
    problem: Problem,
    device: DeviceFacts,
    policy: Policy,
    *,
    mode: Mode,
    budget: Budget,
    hooks: Hooks = NO_HOOKS,
) -> list[Finding]:
    """What was found out about each candidate, in the order in which they come.

    Mode ``quick`` takes candidates for as long as there is time to look at them, ``full`` takes all.
    """
    contest = Contest(problem, device, policy, baseline, known, mode, budget, hooks)
    return quick(candidates, contest) if mode is Mode.QUICK else full(candidates, contest)
