"""A choice from the store alone: no backend is asked what there is, and nothing is measured.

Listing everything takes cuDNN's planner tens of milliseconds in a new process. Where an earlier search knew of the
same backends, what it measured says who may win; those candidates are made by their names, the cheapest first, until
one is allowed.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import inf

from convwright.core.finding import Finding
from convwright.measuring.compare import TIE
from convwright.tuning import listing
from convwright.tuning.choose import Verdict, choose, cost, cost_of, is_unstable, objection, surely_less
from convwright.tuning.keeping.recall import Recall
from convwright.tuning.search import Search, baseline_of


def remembered(search: Search) -> tuple[Verdict, Finding] | None:
    """Who wins, and PyTorch's own call; None where no search is done that tells."""
    recall = search.recall()
    return best_known(search, recall) if recall.is_settled(search.mode) else None


def best_known(search: Search, recall: Recall) -> tuple[Verdict, Finding] | None:
    """The same of whatever was measured, be it by a search for something else."""
    own = _own(search, recall)
    if own is None or own.measurement is None:
        return None
    verdicts = choose([own, *_cheapest(search, recall, own)], own, search.policy)
    return (verdicts[0], own) if verdicts[0].won else None


def _own(search: Search, recall: Recall) -> Finding | None:
    offers = listing.of_family("torch/default", search.problem, search.device, search.policy)
    baseline = baseline_of(listing.candidates(offers), search.policy)
    return None if baseline is None else recall.finding(baseline)


def _cheapest(search: Search, recall: Recall, own: Finding) -> Iterator[Finding]:
    """Findings that may win by what they cost, up to the first that is allowed and those that tie with it."""
    policy, measured = search.policy, recall.measured()
    costs = {id_: cost_of(each, policy) for id_, each in measured.items() if id_ != own.candidate.id}
    if objection(own, own, policy) is None:
        base, stands = cost(own, policy), is_unstable(own, policy)
        costs = {id_: each for id_, each in costs.items() if not stands and surely_less(each, base)}
    enough = inf
    for id_ in sorted(costs, key=lambda id_: costs[id_].value):
        if costs[id_].value > enough:
            return
        candidate = listing.with_id(id_, search.problem, search.device, policy)
        finding = None if candidate is None else recall.finding(candidate)
        if finding is not None:
            yield finding
            if objection(finding, own, policy) is None:
                enough = min(enough, (1 + TIE) * costs[id_].value)
