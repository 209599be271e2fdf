"""Choose from the store alone: no backend is asked for candidates, and nothing is measured.

Listing everything takes cuDNN's planner tens of milliseconds in a new process. If an earlier search knew the same
backends, its measurements show which candidates may win. They are made by name, cheapest first, until one is allowed.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import inf
from typing import NamedTuple

from convwright.core.finding import Finding
from convwright.core.policy import Policy
from convwright.measuring.compare import TIE
from convwright.tuning import listing
from convwright.tuning.choose import Eager, choose, cost, cost_of, is_unstable, objection, surely_less
from convwright.tuning.recall import Recall
from convwright.tuning.search import Search, baseline_of


class Known(NamedTuple):
    """PyTorch's own call, and the other candidates that may win by their times."""

    own: Finding
    others: tuple[Finding, ...]

    def winner(self, policy: Policy, eager: Eager | None) -> Finding | None:
        """The winner under ``policy``, in an eager call or in a captured one."""
        verdict = choose([self.own, *self.others], self.own, policy, eager)[0]
        return verdict.finding if verdict.won else None


def known(search: Search, recall: Recall, eager: Eager | None = None) -> Known | None:
    """What the store's measurements lead to, whichever search made them; None if they do not suffice."""
    own = _own(search, recall) if recall.measured() else None
    if own is None or own.measurement is None:
        return None
    return Known(own, tuple(_cheapest(search, recall, own, eager)))


def _own(search: Search, recall: Recall) -> Finding | None:
    offers = listing.of_family("torch/default", search.problem, search.device, search.policy)
    baseline = baseline_of(listing.candidates(offers), search.policy)
    return None if baseline is None else recall.finding(baseline)


def _cheapest(search: Search, recall: Recall, own: Finding, eager: Eager | None) -> Iterator[Finding]:
    """Findings by cost, up to the first that is allowed (also in an eager call), and those that tie with it."""
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
            if objection(finding, own, policy) or (eager is not None and eager.objection(finding, own, policy)):
                continue
            enough = min(enough, (1 + TIE) * costs[id_].value)
