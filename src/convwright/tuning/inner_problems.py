"""Choose the candidates of inner problems that are worth a rewrite around them."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from convwright.core.candidate import Candidate
from convwright.core.kinds.problem import Problem
from convwright.settings import Mode
from convwright.tuning import listing
from convwright.tuning.budget import Budget
from convwright.tuning.choose import choose
from convwright.tuning.recall import Recall
from convwright.tuning.run import Run
from convwright.tuning.search import Search, baseline_of

# Inner searches start within the share _SHARE of the budget. Each gets what is left divided by _EACH, since the most
# promising come first. Of each, the _MOST_WRAPPED best are wrapped, and also the _SAVING best of those that save
# multiplications, which may turn out to be wrong.
_SHARE, _EACH = 0.4, 3
_MOST_WRAPPED, _SAVING = 2, 1


def searching(search: Search) -> listing.Promising:
    """A function that runs quick timings of an inner problem's candidates and names the best; the whole, with its
    rewrite, is timed later."""

    def promising(problem: Problem) -> list[Candidate]:
        direct = listing.candidates(search.offers(problem))  # not charged to the inner budget
        left_us = search.budget.left_us - (1 - _SHARE) * search.budget.total_us
        inner = replace(
            search, problem=problem, policy=search.policy.by_time, mode=Mode.QUICK,
            budget=Budget(max(left_us, 1.0) / _EACH), energy=False,
        )  # fmt: skip
        late = not search.budget.has(1 - _SHARE)
        if late or inner.recall(rewrites=False).tried(Mode.QUICK, direct) is not None:
            return known_best(search, problem)
        run = Run(inner, direct, partial(known_best, inner), rewrites=False, most_chains=0, afresh=True)
        ranked = run.glance()
        whole = [candidate for candidate in ranked if not candidate.leaf.saves_products][:_MOST_WRAPPED]
        saving = [candidate for candidate in ranked if candidate.leaf.saves_products][:_SAVING]
        return [*whole, *saving] or known_best(search, problem)

    return promising


def known_best(search: Search, problem: Problem) -> list[Candidate]:
    """The candidates for an inner problem that are worth wrapping: the fastest that were measured and not found wrong,
    or the first of each backend if none was measured."""
    listed = listing.candidates(search.offers(problem))
    known = Recall(problem, search.device, search.policy, search.store, "direct").known(listed)
    own = baseline_of(listed, search.policy)
    base = known.get(own.id) if own is not None else None
    verdicts = choose(list(known.values()), base, search.policy.by_time)
    best = [v.finding.candidate for v in verdicts if v.allowed]
    best += [
        v.finding.candidate
        for v in verdicts
        if v.finding.measurement is not None and not v.finding.measurement.errors and not v.allowed
        and listing.objection(v.finding.candidate, search.policy) is None
    ]  # fmt: skip
    return best[:_MOST_WRAPPED] or listing.first_of_each(listed, search.policy)
