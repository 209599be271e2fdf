"""The order in which a search times candidates. Rewrites are planned only at their turn."""

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

# _BEFORE_REWRITES candidates of the problem itself come before the first rewritten one; if all chains are planned, as
# many as fit into the share _BEFORE_ALL of the budget. If only some are planned, planning stops when less than that
# share is left: each asks every backend about another problem.
_BEFORE_REWRITES, _BEFORE_ALL = 8, 0.15
_LEAST_LEFT = 0.6


@dataclass(slots=True)
class _Queue:
    """A backend's waiting candidates, its number of turns, their total time, and its best time."""

    waiting: deque[Candidate] = field(default_factory=deque)
    taken: int = 0
    spent_us: float = 0.0
    best_us: float | None = None


class Lineup:
    """Yields candidates in this order: PyTorch's own call, kernels compiled by now, candidates that are quick to build
    (with some rewrites among them), candidates whose libraries link at their first run, kernels still to be compiled,
    and kernels that are never compiled because the policy forbids them.

    Backends take turns, each with its most promising candidate first. Slow preparation or slow results make a backend's
    turns rarer: one that is five times slower than the best gets every fifth turn. The caller reports each result with
    ``hear``. ``listed`` are all candidates known so far, ``refusals`` the impossible rewrites. ``most_chains`` limits
    the chains of rewrites, None means all. ``is_built`` says what is compiled by now, ``wait`` waits for more,
    ``kernels_of`` names the kernels compiled for an inner problem, ``is_allowed`` applies the policy, and ``rank``
    sorts by promise.
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
        """Report the time of a candidate."""
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
        """Release candidates that have been compiled meanwhile."""
        waiting, self._compiled = self._compiled, []
        self._enter(waiting)

    def _turns(self, most: int | None = None, *, while_left: float | None = None) -> Iterator[Candidate]:
        """Candidates in turns, at most ``most``, while this share of the budget is left."""
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
        """The first candidate of the queue whose turn it is. The baseline is first of all, then compiled kernels: they
        were the most promising, cost nothing to build, and a search may be made for their sake."""
        queues = [queue for queue in self._queues.values() if queue.waiting]
        if not queues:
            return None
        seen = [each.best_us for each in self._queues.values() if each.best_us is not None]
        best_us = max(min(seen, default=1.0), 1e-3)
        spent_us, taken = (sum(getattr(each, name) for each in self._queues.values()) for name in ("spent_us", "taken"))
        turn_us = spent_us / max(taken, 1)

        def weight(queue: _Queue) -> float:
            """The number of turns so far, weighted by their length and by how many times slower than the best the
            backend is, as far as known."""
            turns = queue.taken + queue.spent_us / turn_us if turn_us > 0 else queue.taken
            return (turns + 1) * (queue.best_us / best_us if queue.best_us is not None else 1.0)

        def rank(queue: _Queue) -> tuple[bool, bool, float]:
            first = queue.waiting[0]
            return first != self._baseline, not first.compiles, weight(queue)

        queue = min(queues, key=rank)
        queue.taken += 1
        return queue.waiting.popleft()

    def _plan_rewrites(self) -> None:
        """Plan all chains, or the most promising while there is time. Later ones are planned only around compiled
        kernels, which needs no backend. In a full search ``promising`` names no kernel that is still being compiled.
        Those are tried when they come."""
        problem, device, promising = self._asked
        possible, self.refusals = chains(problem, device)
        rewritten: list[Candidate] = []
        for chain in possible[: self._most]:
            has_time = self._most is None or self._budget.has(_LEAST_LEFT)
            known = promising(chain.inner) if has_time else []
            kernels = [each for each in self._kernels_of(chain.inner) if not (has_time and self._is_built(each))]
            rewritten += [chain.wrap(candidate) for candidate in dict.fromkeys([*known, *kernels])]
        self.listed += rewritten
        self._enter(self._rank(rewritten))
