"""Compiling for searches that follow one another: while one is made, kernels of the next problems are compiled.

A quick search has no time for a compiler at all, and of 15 layers that were searched for 4 s each, one after the other,
4 were left without any kernel of ours: those that an earlier search had begun were still being compiled. A quick
search of one problem, behind which no call comes, waits for its kernels in the same way.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from time import perf_counter

from convwright.backends.registry import backends
from convwright.core.candidate import Candidate
from convwright.core.device import DeviceFacts
from convwright.core.kinds.problem import Problem
from convwright.core.plan import Compiles
from convwright.core.policy import Policy
from convwright.measuring.disturbances.background import processors
from convwright.settings import BUDGETS_US, Mode
from convwright.tuning import listing
from convwright.tuning.budget import Budget
from convwright.tuning.compiling import pool
from convwright.tuning.compiling.ahead import NO_TIME, promising
from convwright.tuning.compiling.beside import BEING_COMPILED
from convwright.tuning.compiling.compilers import load
from convwright.tuning.keeping.store import Store
from convwright.tuning.search import Kernels, search_for
from convwright.tuning.trials.contest import NO_HOOKS, Progress

# Kernels of a problem, the most promising ones, and of so many problems behind the one that is searched.
_MOST, _PROBLEMS_AHEAD = {Mode.QUICK: 4, Mode.FULL: 12}, 6
# A quick search waits for its own so long at most: what comes later is tried at a later call.
_WAITED_S = 10.0
# With fewer processors whatever compiles disturbs what is timed.
_FEWEST_PROCESSORS = 4


class Series:
    """Kernels of ``problems``, which are searched one after the other, in this order or with some left out.

    For a device that is elsewhere there are none, nor for what the store has settled. Who knows which ``kernels`` are
    worth it says so; otherwise they are the most promising.
    """

    def __init__(
        self,
        problems: Iterable[Problem],
        device: DeviceFacts,
        policy: Policy,
        *,
        mode: Mode,
        store: Store,
        budget_us: float | None = None,
        kernels: Mapping[Problem, Sequence[Candidate]] | None = None,
    ) -> None:
        self._order = list(dict.fromkeys(problems))
        self._device, self._policy, self._mode, self._store = device, policy, mode, store
        self._budget_us, self._given = budget_us or BUDGETS_US.get(mode, 0.0), kernels or {}
        self._wanted: dict[Problem, list[Candidate]] = {}
        self._waiting: deque[Candidate] = deque()
        self._came: dict[Candidate, str | None] = {}  # of each that has ended what its compiler died of, or None
        self._changed = threading.Condition()
        self._working, self._is_over = 0, False

    @contextmanager
    def compiling(self) -> Iterator[Series]:
        """Inside kernels are compiled; behind it no more are begun."""
        with pool.told_of_interrupts():
            try:
                yield self
            finally:
                with self._changed:
                    self._is_over = True

    def ready(self, problem: Problem, told: Progress = NO_HOOKS.progress) -> Kernels | None:
        """To be asked right before ``problem`` is searched: who knows what a quick search has compiled; None where a
        search has time to wait for its own. Of those that are waited for ``told`` is told how many there are."""
        if self._mode not in _MOST or not self._device.present:
            return None
        pool.go_on()
        until_s = perf_counter() + _WAITED_S
        place = self._order.index(problem)
        further = _PROBLEMS_AHEAD if processors() >= _FEWEST_PROCESSORS else 0
        for each in self._order[place : place + 1 + further]:
            if each not in self._wanted:
                self._want(each)
        wanted = self._wanted[problem]
        if self._mode is not Mode.QUICK or not wanted:
            return None
        self._load_as_they_come(wanted, until_s, told)
        return self

    def _load_as_they_come(self, wanted: list[Candidate], until_s: float, told: Progress) -> None:
        missing = wanted
        told("compiling", 0, len(wanted))
        while missing and (there := self._there(missing, until_s)):
            for kernel in there:
                self._load(kernel, until_s)
            missing = [each for each in missing if each not in there]
            told("compiling", len(wanted) - len(missing), len(wanted))

    def _there(self, missing: list[Candidate], until_s: float) -> list[Candidate]:
        """Those that have ended, once one has; none where that takes too long."""
        with self._changed:
            self._changed.wait_for(lambda: any(each in self._came for each in missing), until_s - perf_counter())
            return [each for each in missing if each in self._came]

    def _load(self, kernel: Candidate, until_s: float) -> None:
        """Read into this process what another has compiled, as looks have no time for; what no other could, this one
        compiles, as long as there is time for that."""
        if perf_counter() > until_s:
            self._came[kernel] = BEING_COMPILED
        elif self.is_built(kernel, self._device):
            with suppress(Exception):  # compilers have no common one, and the look that follows says it again
                listing.build(kernel, self._device)

    def is_built(self, candidate: Candidate, device: DeviceFacts) -> bool:
        return self._came.get(candidate.leaf, "") is None

    def reason_to_wait(self, candidate: Candidate, device: DeviceFacts) -> str | None:
        leaf = candidate.leaf
        if leaf in self._came:
            return self._came[leaf]
        return BEING_COMPILED if leaf in self._wanted.get(candidate.problem, ()) else NO_TIME

    def _want(self, problem: Problem) -> None:
        """Have the kernels of a problem compiled."""
        given = self._given.get(problem)
        kernels = [*(self._promising(problem) if given is None else given)][: _MOST[self._mode]]
        self._wanted[problem] = kernels
        if not kernels:
            return
        for name in {kernel.backend for kernel in kernels}:
            load(name)
        if self._mode is Mode.FULL:  # or else they start while it is timed; a quick search waits for what they compile
            pool.shared_compilers().start(min(len(kernels), self._places()))
        with self._changed:
            self._waiting.extend(kernels)
            missing = min(len(self._waiting), self._places()) - self._working
            self._working += max(missing, 0)
        begun = pool.begun(self._work, missing)
        if begun < missing:
            with self._changed:
                self._working -= missing - begun

    def _promising(self, problem: Problem) -> list[Candidate]:
        """The most promising kernels of a problem that was not searched before."""
        search = search_for(problem, self._device, self._policy, self._mode, self._store, Budget(self._budget_us))
        if search.recall().is_settled(self._mode):
            return []
        asked = (member for member in backends(problem.kind) if isinstance(member, Compiles))
        offers = (offer for member in asked for offer in member.candidates(problem, self._device, search.policy))
        return promising(search, listing.candidates(offers))

    def _places(self) -> int:
        """For as many kernels at once: a search in full has those that it waits for compiled first."""
        return pool.PLACES if self._mode is Mode.QUICK else pool.PLACES - pool.MOST_AT_ONCE

    def _work(self) -> None:
        while (kernel := self._next()) is not None:
            died: str | None = "could not be compiled"
            try:
                died = pool.shared_compilers().compile(kernel, self._device)
                if pool.is_over():  # nobody waited for the compiler
                    died = BEING_COMPILED
            finally:
                with self._changed:
                    self._came[kernel] = died
                    self._changed.notify_all()

    def _next(self) -> Candidate | None:
        with self._changed:
            if self._waiting and not self._is_over:
                return self._waiting.popleft()
            self._working -= 1
            return None
