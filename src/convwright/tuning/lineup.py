"""The order in which a search looks at candidates. Rewrites are planned only when it is their turn."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from convwright.core.candidate import Candidate, Refusal
from convwright.core.device import DeviceFacts
from convwright.core.kinds.problem import Problem
from convwright.tuning import listing
from convwright.tuning.budget import Budget
from convwright.tuning.chains import chains
from convwright.tuning.ranking import Rank

# So many candidates of the problem itself come before the first rewritten one; where all chains of rewrites are
# planned, as many as there are within this share of the budget. Where only some are planned, that is as long as so much
# is left: planning one asks every backend about another problem.
_BEFORE_REWRITES, _BEFORE_ALL = 8, 0.15
_LEAST_LEFT = 0.6


@dataclass(slots=True)
class _Queue:
    """The candidates of one backend that wait, how many were taken, how long that took, and the best time of any."""

    waiting: deque[Candidate] = field(default_factory=deque)
    taken: int = 0
    spent_us: float = 0.0
    best_us: float | None = None


class Lineup:
    """PyTorch's own call, what has been compiled by now, then what is quick to build, some rewrites among it. What a
    library links at its first run comes behind them, then what has still to be compiled, and last what nobody compiles
    since it is not allowed.

    Backends take turns, each with its most promising candidate first, one whose candidates take long to be made ready
    and looked at less often, and one whose are fast more often: who listens to the lineup tells it with ``hear`` what
    was seen. One that is five times slower than the best has every fifth turn. ``listed`` are all candidates that are
    known of so far, and ``refusals`` what cannot be. ``most_chains`` is how many chains of rewrites are planned, None
    all there are; ``is_built`` tells what is compiled by now, ``wait`` waits for more of it, ``kernels_of`` names what
    is compiled for a problem inside a rewrite, and ``is_allowed`` tells what may be chosen; ``rank`` puts the most
    promising first.
    """

    def __init__(
        self,
        problem: Problem,
        device: DeviceFacts,
        direct: Sequence[Candidate],
        baseline: Candidate | None,
        promising: listing.Promising,
        budget: Budget,
        *,
        most_chains: int | None,
        rank: Rank,
        is_built: Callable[[Candidate], bool] = lambda candidate: False,
        wait: Callable[[], bool] = lambda: False,
        kernels_of: Callable[[Problem], list[Candidate]] = lambda problem: [],
        is_allowed: Callable[[Candidate], bool] = lambda candidate: True,
    ) -> None:
        self.listed = list(direct)
        self.refusals: list[Refusal] = []
        self._device, self._baseline, self._budget = device, baseline, budget
        self._asked, self._most = (problem, device, promising), most_chains
        self._rank, self._is_built, self._wait, self._is_allowed = rank, is_built, wait, is_allowed
        self._kernels_of = kernels_of
        self._queues: dict[str, _Queue] = {}
        self._linked: list[Candidate] = []
        self._compiled: list[Candidate] = []
        self._forbidden: list[Candidate] = []

    def __iter__(self) -> Iterator[Candidate]:
        self._enter(self._rank(self.listed))
        yield from self._turns(_BEFORE_REWRITES)
        if self._most is None:
            yield from self._turns(while_left=1 - _BEFORE_ALL)
        if self._most != 0:
            self._plan_rewrites()
        yield from self._turns()
        while self._linked:
            yield self._linked.pop(0)
            self._enter_built()
            yield from self._turns()
        while self._compiled and self._wait():
            self._enter_built()
            yield from self._turns()
        yield from (*self._compiled, *self._forbidden)

    def hear(self, candidate: Candidate, look_us: float) -> None:
        """A candidate was looked at, and took so long."""
        queue = self._queues.get(candidate.backend)
        if queue is not None:
            queue.best_us = look_us if queue.best_us is None else min(queue.best_us, look_us)

    def _enter(self, candidates: Sequence[Candidate]) -> None:
        for candidate in candidates:
            if candidate == self._baseline:
                self._queues.setdefault(candidate.backend, _Queue()).waiting.appendleft(candidate)
            elif candidate.leaf.links_us:
                self._linked.append(candidate)
            elif candidate.compiles and not self._is_built(candidate):
                (self._compiled if self._is_allowed(candidate) else self._forbidden).append(candidate)
            else:
                self._queues.setdefault(candidate.backend, _Queue()).waiting.append(candidate)

    def _enter_built(self) -> None:
        """What has been compiled meanwhile is no more kept back."""
        waiting, self._compiled = self._compiled, []
        self._enter(waiting)

    def _turns(self, most: int | None = None, *, while_left: float | None = None) -> Iterator[Candidate]:
        """Candidates by turns, so many at the most, while this share of the budget is left."""
        taken = 0
        while taken != most and (while_left is None or self._budget.has(while_left)):
            candidate = self._next()
            if candidate is None:
                return
            taken, begun_us = taken + 1, self._budget.now_us()
            yield candidate
            self._queues[candidate.backend].spent_us += self._budget.now_us() - begun_us
            self._enter_built()

    def _next(self) -> Candidate | None:
        """The first of the queue whose turn it is. The baseline is before all, and behind it what has been compiled:
        it promised more than others, is built in no time, and a search may be made for its sake."""
        queues = [queue for queue in self._queues.values() if queue.waiting]
        if not queues:
            return None
        seen = [each.best_us for each in self._queues.values() if each.best_us is not None]
        best_us = max(min(seen, default=1.0), 1e-3)
        spent_us, taken = (sum(getattr(each, name) for each in self._queues.values()) for name in ("spent_us", "taken"))
        turn_us = spent_us / max(taken, 1)

        def weight(queue: _Queue) -> float:
            """How often it had its turn, twice that where its turns are as long as others', times how many times slower
            than the best it is as far as is known."""
            turns = queue.taken + queue.spent_us / turn_us if turn_us > 0 else queue.taken
            return (turns + 1) * (queue.best_us / best_us if queue.best_us is not None else 1.0)

        def rank(queue: _Queue) -> tuple[bool, bool, float]:
            first = queue.waiting[0]
            return first != self._baseline, not first.compiles, weight(queue)

        queue = min(queues, key=rank)
        queue.taken += 1
        return queue.waiting.popleft()

    def _plan_rewrites(self) -> None:
        """All chains, or the most promising ones while there is time. After that only around compiled kernels, since no
        backend is asked for those."""
        problem, device, promising = self._asked
        possible, self.refusals = chains(problem, device)
        rewritten: list[Candidate] = []
        for chain in possible[: self._most]:
            has_time = self._most is None or self._budget.has(_LEAST_LEFT)
            inner = promising(chain.inner) if has_time else self._kernels_of(chain.inner)
            rewritten += [chain.wrap(candidate) for candidate in inner]
        self.listed += rewritten
        self._enter(self._rank(rewritten))
