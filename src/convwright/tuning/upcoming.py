"""Series of searches: while one runs, kernels for the next problems compile."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from time import perf_counter

from convwright.core.candidate import Candidate
from convwright.core.device import DeviceFacts
from convwright.core.kinds.problem import Problem
from convwright.core.policy import Policy
from convwright.measuring.disturbances.background import processors
from convwright.settings import BUDGETS_US, Mode
from convwright.store.store import Store
from convwright.tuning.budget import Budget
from convwright.tuning.compile_queue import Priority, compile_queue
from convwright.tuning.kernels import IN_SERIES, WAITED_S, likely
from convwright.tuning.search import search_for

# How many kernels per problem, and for how many problems after the current one.
_MOST, _PROBLEMS = {Mode.QUICK: IN_SERIES, Mode.FULL: 12}, 12
# With fewer processors, compilers would disturb the timing.
_FEWEST_PROCESSORS = 4


class Upcoming:
    """Problems to be searched one after the other, in about this order; some may be skipped."""

    def __init__(
        self,
        problems: Iterable[Problem],
        device: DeviceFacts,
        policy: Policy,
        *,
        mode: Mode,
        store: Store,
        budget_us: float | None = None,
    ) -> None:
        self._order = list(dict.fromkeys(problems))
        self._device, self._policy, self._mode, self._store = device, policy, mode, store
        self._budget_us = budget_us or BUDGETS_US.get(mode, 0.0)
        self._wanted: dict[Problem, list[Candidate]] = {}

    @contextmanager
    def compiling(self) -> Iterator[Upcoming]:
        """Inside, kernels are compiled; afterwards no more are started."""
        try:
            with compile_queue().timing():
                yield self
        finally:
            compile_queue().drop((kernel for kernels in self._wanted.values() for kernel in kernels), self._device)

    def in_turn(self) -> Iterator[Problem]:
        """Every problem once, each when its kernels are ready, so that no search waits while another is possible."""
        left = list(self._order)
        while left:
            problem = self._first_ready(left[: 1 + _PROBLEMS])
            left.remove(problem)
            yield problem

    def at(self, problem: Problem) -> None:
        """Call this right before searching ``problem``, if the order is fixed."""
        place = self._order.index(problem)
        self._want(self._order[place : place + 1 + _PROBLEMS])

    def _want(self, problems: Iterable[Problem]) -> None:
        if self._mode not in _MOST or not self._device.present or processors() < _FEWEST_PROCESSORS:
            return
        for each in problems:
            if each not in self._wanted:
                search = search_for(each, self._device, self._policy, self._mode, self._store, Budget(self._budget_us))
                was_searched = search.recall().is_settled(self._mode)
                kernels = self._wanted[each] = [] if was_searched else likely(search)[: _MOST[self._mode]]
                compile_queue().want(kernels, self._device, Priority.NEXT, loads=False)

    def _first_ready(self, problems: Sequence[Problem]) -> Problem:
        self._want(problems)
        if self._mode is Mode.QUICK:  # a full search runs while its kernels compile
            compile_queue().wait(lambda: any(map(self._is_ready, problems)), perf_counter() + WAITED_S)
        return next(filter(self._is_ready, problems), problems[0])

    def _is_ready(self, problem: Problem) -> bool:
        """Whether no kernel of it is being compiled."""
        queue = compile_queue()
        return not any(
            queue.came(kernel, self._device) is None and queue.is_wanted(kernel, self._device)
            for kernel in self._wanted.get(problem, ())
        )
