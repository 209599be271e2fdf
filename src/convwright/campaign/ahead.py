"""Prepare a GPU's next problems: another process lists and compiles candidates while the GPU measures."""

from __future__ import annotations

import queue
import threading
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace

from convwright.campaign.campaign import Campaign
from convwright.campaign.child import Plan
from convwright.campaign.drawn import Drawn
from convwright.campaign.listed import Listed
from convwright.campaign.process import Process
from convwright.campaign.series import Turns
from convwright.core.candidate import Candidate
from convwright.core.policy import Policy
from convwright.tuning.workers import Abandoned, TaskFailed, WorkerDied

# Listing candidates asks libraries, which takes up to a second.
_MOST_PLANNING_S = 120.0
# How many problems compile at the same time, and how many may be ready and wait for the GPU.
_COMPILING, _READY = 12, 8
# After this time the GPU continues without the missing kernels.
_MOST_COMPILING_S = 60.0
_POLL_S = 0.2


@dataclass(frozen=True, slots=True)
class Planned:
    """A problem that is ready to be measured, or the reason why its candidates could not be listed."""

    drawn: Drawn
    policy: Policy
    listed: tuple[Listed, ...]
    failed: str | None = None


def plan_of(campaign: Campaign, drawn: Drawn, process: Process) -> Planned:
    """The problem with its candidates."""
    try:
        plan: Plan = process.ask("plan", campaign, drawn, patience_s=_MOST_PLANNING_S)
    except (WorkerDied, TaskFailed) as error:
        return Planned(drawn, Policy(), (), f"its candidates could not be listed: {error}")
    return Planned(drawn, plan.policy, plan.listed)


class Ahead:
    """A thread that keeps problems ready. An error in the thread is raised by ``next``. ``process`` starts the process
    that lists and compiles; its argument is a function that is true once that process should stop."""

    def __init__(
        self,
        campaign: Campaign,
        turns: Turns,
        process: Callable[[Callable[[], bool]], Process],
        ends: Callable[[], bool],
    ) -> None:
        self._campaign, self._turns, self._ends = campaign, turns, ends
        self._ready: queue.Queue[Planned] = queue.Queue(_READY)
        self._error: BaseException | None = None
        self._ended = threading.Event()
        self._process = process(self._is_over)
        self._thread = threading.Thread(target=self._run, name="convwright-planning", daemon=True)
        self._thread.start()

    def next(self) -> Planned | None:
        """The next problem; None when it is time to end."""
        while not self._ends():
            with suppress(queue.Empty):
                return self._ready.get(timeout=_POLL_S)
            if self._error is not None:
                raise self._error
        return None

    def end(self) -> None:
        """Prepare no more."""
        self._ended.set()
        self._thread.join()
        self._process.end()

    def _is_over(self) -> bool:
        return self._ended.is_set() or self._ends()

    def _run(self) -> None:
        try:
            self._prepare()
        except Abandoned:
            pass
        except BaseException as error:  # any error must reach the lane
            self._error = error

    def _prepare(self) -> None:
        compiling: deque[Planned] = deque()
        while not self._is_over():
            is_full = len(compiling) == _COMPILING
            if not is_full:
                compiling.append(plan_of(self._campaign, self._turns.next(), self._process))
            come = [(each, ready) for each in compiling if (ready := self._compiled(each, 0.0)) is not None]
            if is_full and not come:
                come = [(compiling[0], self._compiled(compiling[0], _MOST_COMPILING_S) or compiling[0])]
            for planned, ready in come:
                compiling.remove(planned)
                self._put(ready)

    def _compiled(self, planned: Planned, patience_s: float) -> Planned | None:
        """The problem once its kernels are compiled, else None. After ``patience_s`` it continues without the late
        ones."""
        if planned.failed is not None or not any(each.candidate.leaf.compiles for each in planned.listed):
            return planned
        plan = Plan(planned.policy, planned.listed)
        try:
            wrong: Mapping[Candidate, str | None] | None = self._process.ask(
                "compiled", plan, patience_s, patience_s=2 * _MOST_COMPILING_S
            )
        except (WorkerDied, TaskFailed):
            return planned  # kernels that are not compiled yet are compiled when built
        if wrong is None:
            return None
        late = {kernel for kernel, said in wrong.items() if said is None}
        listed = (each for each in planned.listed if each.candidate.leaf not in late)
        return replace(planned, listed=tuple(replace(each, broken=wrong.get(each.candidate.leaf)) for each in listed))

    def _put(self, planned: Planned) -> None:
        while not self._is_over():
            with suppress(queue.Full):
                self._ready.put(planned, timeout=_POLL_S)
                return
