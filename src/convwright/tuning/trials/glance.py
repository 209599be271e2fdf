"""First looks alone: which candidates are worth more than that, where nothing is timed or checked."""

from __future__ import annotations

from collections.abc import Iterable

from convwright.core.candidate import Candidate
from convwright.shortage import SHORTAGES
from convwright.tuning.trials.contest import Contest
from convwright.tuning.trials.looks import Looks, none_had

# A call that takes this share of the budget is not repeated.
_PATIENCE = 0.05


def glance(candidates: Iterable[Candidate], contest: Contest) -> list[Candidate]:
    """Those that could be run within the budget, the fastest at a first look before all; none where memory is too short
    for their operands."""
    hooks, budget = contest.hooks, contest.budget
    try:
        looks = Looks(contest.bench(), budget, contest.policy, hooks.trying, patience_us=_PATIENCE * budget.total_us)
    except SHORTAGES as error:
        none_had((), error)
        return []
    for candidate in candidates:
        if looks.looked and budget.left_us <= 0:
            break
        look = looks.at(candidate)
        if look is not None:
            hooks.looked(candidate, looks.cost_us(candidate))
    return sorted(looks.looked, key=looks.cost_us)
