"""Problems inside rewrites: which of their candidates are worth a rewrite around them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from convwright.core.candidate import Candidate
from convwright.core.problem import ConvProblem
from convwright.settings import Mode
from convwright.tuning import listing
from convwright.tuning.budget import Budget
from convwright.tuning.choose import choose
from convwright.tuning.keeping.recall import Recall
from convwright.tuning.search import Search, baseline_of

# All of them together may take this share of the budget, each what is left of it divided by so many, since the most
# promising come first; and so many of the best of each are wrapped.
_SHARE, _EACH = 0.4, 3
_MOST_WRAPPED = 2


def searching(search: Search, searched: Callable[[Search, list[Candidate]], object]) -> listing.Promising:
    """Has a problem inside a rewrite ``searched``, each for its share of the time, and names its best."""

    def promising(problem: ConvProblem) -> list[Candidate]:
        offers = listing.direct(problem, search.device, search.policy)
        left_us = search.budget.left_us - (1 - _SHARE) * search.budget.total_us
        inner = replace(
            search, problem=problem, policy=search.timing_policy, mode=Mode.QUICK,
            budget=Budget(max(left_us, 1.0) / _EACH), energy=False,
        )  # fmt: skip
        direct = listing.candidates(offers)
        late = not search.budget.has(1 - _SHARE)
        if not late and inner.recall(rewrites=False).tried(Mode.QUICK, direct) is None:
            searched(inner, direct)
        return known_best(search, problem)

    return promising


def known_best(search: Search, problem: ConvProblem) -> list[Candidate]:
    """The few candidates for the problem inside a rewrite that are worth wrapping: the fastest that were measured and
    not found wrong, or the first of each backend where none was."""
    listed = listing.candidates(listing.direct(problem, search.device, search.policy))
    known = Recall(problem, search.device, search.policy, search.store, "direct").known(listed)
    own = baseline_of(listed, search.policy)
    base = known.get(own.id) if own is not None else None
    verdicts = choose(list(known.values()), base, search.timing_policy)
    best = [v.finding.candidate for v in verdicts if v.allowed]
    best += [
        v.finding.candidate
        for v in verdicts
        if v.finding.measurement is not None and not v.finding.measurement.errors and not v.allowed
        and listing.objection(v.finding.candidate, search.policy) is None
    ]  # fmt: skip
    return best[:_MOST_WRAPPED] or listing.first_of_each(listed, search.policy)
