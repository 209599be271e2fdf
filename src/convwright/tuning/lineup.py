"""The order in which a quick search looks at candidates. Rewrites are planned only when it is their turn."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from convwright.core.candidate import Candidate, Refusal
from convwright.core.device import DeviceFacts
from convwright.core.policy import Policy
from convwright.core.problem import ConvProblem
from convwright.tuning import listing
from convwright.tuning.budget import Budget
from convwright.tuning.prediction import by_promise

# So many candidates of the problem itself come before the first rewritten one. Rewrites are planned if this share of
# the budget is left: planning one asks every backend about another problem.
_BEFORE_REWRITES = 8
_LEAST_LEFT = 0.6


class Lineup:
    """PyTorch's own call, then what is quick to build by its promise, some rewrites among it; what compiles is last.

    ``listed`` are all candidates that are known of so far, and ``refusals`` what cannot be. ``chains`` is how many
    chains of rewrites are planned, None all there are.
    """

    def __init__(
        self,
        problem: ConvProblem,
        device: DeviceFacts,
        policy: Policy,
        direct: Sequence[Candidate],
        baseline: Candidate | None,
        promising: listing.Promising,
        budget: Budget,
        *,
        chains: int | None,
    ) -> None:
        self.listed = list(direct)
        self.refusals: list[Refusal] = []
        self._device, self._baseline = device, baseline
        self._asked, self._most = (problem, device, policy, promising), chains
        self._budget = budget

    def __iter__(self) -> Iterator[Candidate]:
        ordered = sorted(by_promise(self.listed, self._device), key=lambda candidate: candidate != self._baseline)
        quick = [candidate for candidate in ordered if not listing.compiles(candidate)]
        slow = [candidate for candidate in ordered if listing.compiles(candidate)]
        yield from quick[:_BEFORE_REWRITES]
        if self._most != 0 and self._budget.has(_LEAST_LEFT):
            offers = listing.rewritten(*self._asked, most=self._most)
            rewritten = by_promise(listing.candidates(offers), self._device)
            self.listed += rewritten
            self.refusals += listing.refusals(offers)
            yield from (candidate for candidate in rewritten if not listing.compiles(candidate))
            slow += [candidate for candidate in rewritten if listing.compiles(candidate)]
        yield from quick[_BEFORE_REWRITES:]
        yield from slow
