"""The process's memory of choices: one store, one mode, and what was chosen for each problem so far."""

from __future__ import annotations

import threading
import warnings
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cache, lru_cache
from pathlib import Path
from time import perf_counter
from typing import NamedTuple

import torch

from convwright import flags
from convwright.core.candidate import Candidate
from convwright.core.device import DeviceFacts
from convwright.core.finding import Finding, Interval
from convwright.core.plan import Plan
from convwright.core.policy import Policy
from convwright.core.problem import ConvProblem
from convwright.core.record import Record
from convwright.errors import BadInput, Refused, StoreWarning
from convwright.forking import in_child
from convwright.settings import Mode, Trust, settings, store_place
from convwright.tuning import listing
from convwright.tuning.asked import named as named
from convwright.tuning.budget import Budget
from convwright.tuning.choose import device_us, host_us, is_torch, rival
from convwright.tuning.compiling.beside import Beside
from convwright.tuning.find import Findings, find, resolved
from convwright.tuning.keeping.store import Store
from convwright.tuning.keeping.stored_plan import stored_plan
from convwright.tuning.ranges import Ranged
from convwright.tuning.remembered import best_known, remembered
from convwright.tuning.search import Search, search_for
from convwright.tuning.unmeasured import unmeasured


@dataclass(frozen=True, slots=True, repr=False)
class Choice(Record):
    """What runs, and what it and PyTorch's own call take on the device and of the host; None where that was not
    measured, and on a CPU, where they are one. ``note`` says why it stands in for what was chosen, if it does."""

    candidate: Candidate
    device: DeviceFacts
    device_us: Interval | None = None
    torch_device_us: Interval | None = None
    host_us: Interval | None = None
    torch_host_us: Interval | None = None
    note: str | None = None

    def __repr__(self) -> str:
        return f"<Choice: {self.candidate.id} for {self.candidate.problem.key} on {self.device.label}>"

    @property
    def is_torch(self) -> bool:
        """True where PyTorch's own call, as its flags make it, was chosen."""
        return is_torch(self.candidate) and self.candidate.inner is None

    def plan(self) -> Plan:
        """The candidate made ready; the same plan at every call."""
        return _plan(self.candidate, self.device)


class Question(NamedTuple):
    """All that bears on a choice; two GPUs of one kind are two, since plans belong to one of them.

    A ``fixed`` choice is not made again: whoever asks for determinism gets the same bits from the first call on.
    """

    problem: ConvProblem
    torch_name: str | None
    device_key: str
    policy: Policy
    algorithm: str | None
    flags: tuple[object, ...]
    fixed: bool


# So many times as long as a longer search took passes before the next.
_REST = 2.0
# Who asks but once waits for compilers so long at most.
_PATIENCE_S = 10.0
_sessions: weakref.WeakSet[Session] = weakref.WeakSet()


def _begin_in_child() -> None:
    for each in list(_sessions):
        each.begin_in_child()


in_child(_begin_in_child)


class Session:
    """Chooses for every problem once and remembers it. ``spent_us`` is what its searches took so far, ``dearest_us``
    what the longest of them did."""

    def __init__(self, mode: Mode, store: Store) -> None:
        self.mode = mode
        self.store = store
        self.last: Choice | None = None
        self.spent_us = self.dearest_us = self._rests_until_s = 0.0
        self._chosen: dict[Question, Choice] = {}
        self._doubted: set[Question] = set()
        self._rivals: dict[Question, Choice] = {}
        self._too_long: dict[Question, float] = {}
        self._longer_us: dict[Question, float] = {}
        self._one_search_at_a_time = threading.RLock()
        self._beside = Beside(self._reconsider)
        _sessions.add(self)

    def choose(self, problem: ConvProblem, device: DeviceFacts, policy: Policy, algorithm: str | None) -> Choice:
        """The candidate that ``policy`` and PyTorch's flags allow, or ``algorithm``, or a clear error."""
        if capturing(device) and algorithm is None:
            return self._while_capturing(problem, device, policy)
        key = _question(problem, device, policy, algorithm)
        with self._one_search_at_a_time:
            if self._holding(key) is None:
                begun_s = perf_counter()
                self._chosen[key] = self._search(problem, device, policy, algorithm)
                self._doubted.discard(key)
                took_us = (perf_counter() - begun_s) * 1e6
                self.spent_us += took_us
                if key in self._longer_us:
                    self._rest_us(_REST * took_us)
                else:
                    self.dearest_us = max(self.dearest_us, took_us)
            choice = self.last = self._chosen[key]
        return choice

    def choose_once(self, problem: ConvProblem, device: DeviceFacts, policy: Policy) -> Choice:
        """The same for who asks but once: what has yet to be compiled, which calls try later, is waited for."""
        choice, key = self.choose(problem, device, policy, None), _question(problem, device, policy, None)
        if key.fixed or capturing(device) or not self._beside.wait_for(problem, device, _PATIENCE_S):
            return choice
        with self._one_search_at_a_time:
            self._doubted.add(key)
        return self.choose(problem, device, policy, None)

    def at_once(self, problem: ConvProblem, device: DeviceFacts, policy: Policy) -> Choice:
        """The same without a search: what is chosen or known already, or else the first that is allowed."""
        if capturing(device):
            return self._while_capturing(problem, device, policy)
        chosen = self._holding(_question(problem, device, policy, None))
        known = chosen or self._remembered(problem, device, policy, self.mode)
        if known is not None:
            return known
        return self._chosen_of(find(problem, device, policy, mode=Mode.HEURISTIC, store=self.store), policy)

    @property
    def chosen(self) -> tuple[Choice, ...]:
        """All choices that hold by now."""
        return tuple(choice for key, choice in list(self._chosen.items()) if key not in self._doubted)

    def knows(self, problem: ConvProblem, device: DeviceFacts, policy: Policy) -> bool:
        """Whether a choice for ``problem`` can be made from the store alone."""
        if settings().trust is not Trust.TRUST or self.mode is Mode.OFF:
            return False
        return self._asked(problem, device, policy, self.mode).recall().is_settled(self.mode)

    def rival(self, problem: ConvProblem, device: DeviceFacts, policy: Policy) -> Choice | None:
        """What seemed far better than PyTorch's own call, which was chosen since other work left that unsure."""
        return self._rivals.get(_question(problem, device, policy, None))

    def too_long_us(self, problem: ConvProblem, device: DeviceFacts, policy: Policy) -> float | None:
        """What PyTorch's own call takes, where that left a search no time to look at anything else."""
        return self._too_long.get(_question(problem, device, policy, None))

    def search_longer(self, problem: ConvProblem, device: DeviceFacts, policy: Policy, budget_us: float) -> None:
        """Make the choice for such a problem anew, once, with this budget."""
        key = _question(problem, device, policy, None)
        with self._one_search_at_a_time:
            if self._too_long.pop(key, None) is not None:
                self._longer_us[key] = budget_us
                self._doubted.add(key)
                self._rest_us(budget_us)  # until it has been made, or is not going to be

    @property
    def rests(self) -> bool:
        """Whether the next longer search should wait for a while."""
        return perf_counter() < self._rests_until_s

    def _rest_us(self, for_us: float) -> None:
        self._rests_until_s = perf_counter() + for_us / 1e6

    def wait_for_compilers(self) -> None:
        """Until all that searches behind calls left to be compiled is there."""
        self._beside.wait()

    def forget(self) -> None:
        """Choose anew, from what the store knows by now."""
        with self._one_search_at_a_time:
            for memory in (self._chosen, self._doubted, self._rivals, self._too_long, self._longer_us):
                memory.clear()

    def _holding(self, key: Question) -> Choice | None:
        """The choice, unless it is to be made anew."""
        return None if key in self._doubted else self._chosen.get(key)

    def _reconsider(self, problem: ConvProblem) -> None:
        """More is compiled now than when the choice for ``problem`` was made."""
        with self._one_search_at_a_time:
            self._doubted |= {key for key in self._chosen if key.problem == problem and not key.fixed}
        for then in _hearers:
            then()

    def begin_in_child(self) -> None:
        """Go on in a child that was forked off: the threads that search and compile are its parent's."""
        self._one_search_at_a_time = threading.RLock()
        before, self._beside = self._beside, Beside(self._reconsider)
        for problem in before.unfinished():
            self._reconsider(problem)

    def _while_capturing(self, problem: ConvProblem, device: DeviceFacts, policy: Policy) -> Choice:
        """What was chosen before, be it in doubt by now, or PyTorch's own call for this once: nothing can be measured
        inside a capture."""
        key = _question(problem, device, policy, None)
        known = self._chosen.get(key)
        if known is not None:
            return known
        own = self.torchs_own(problem, device, policy)
        if own is None:
            raise Refused(f"nothing was chosen for {problem.key} before the capture, in which nothing can be measured")
        return self._chosen.setdefault(key, own) if key.fixed else own

    def torchs_own(self, problem: ConvProblem, device: DeviceFacts, policy: Policy) -> Choice | None:
        """PyTorch's own call as its flags make it; None where it has no call, or one that is known to go wrong."""
        if problem.dtype.narrow:
            return None
        try:
            return Choice(named("torch/default", problem, device, resolved(policy, problem, device)), device)
        except Refused:
            return None

    def smaller(self, choice: Choice, policy: Policy, needed_bytes: int | None) -> Choice | None:
        """What may serve with less workspace in the place of a choice that needs so much: the best that was measured,
        or PyTorch's own call; None where ``policy`` does not allow that. Nothing is measured, and where nothing can
        need less the store is not read."""
        problem, device = choice.candidate.problem, choice.device
        search = self._asked(problem, device, policy, self.mode)
        known, recall = search.policy, search.recall()
        most_bytes = -1 if needed_bytes == 0 else recall.less_bytes(choice.candidate, needed_bytes)
        limit = most_bytes if known.max_workspace_bytes is None else min(known.max_workspace_bytes, most_bytes)
        search = replace(search, policy=replace(known, max_workspace_bytes=max(limit, 0)))
        found = best_known(search, recall) if most_bytes >= 0 else None
        if found is not None:
            return _choice(found[0].finding, found[1], device, policy)
        own = self.torchs_own(problem, device, policy)
        return own if own is not None and listing.objection(own.candidate, search.policy) is None else None

    def _search(self, problem: ConvProblem, device: DeviceFacts, policy: Policy, algorithm: str | None) -> Choice:
        if algorithm is not None:
            return Choice(named(algorithm, problem, device, resolved(policy, problem, device)), device)
        mode = self._mode(policy)
        if mode in (Mode.OFF, Mode.HEURISTIC):
            own = self.torchs_own(problem, device, policy)
            permitted = resolved(policy, problem, device)
            is_allowed = own is not None and listing.objection(own.candidate, permitted) is None
            if own and (mode is Mode.OFF or (is_allowed and not self.store.findings(problem.key, device.key))):
                return own  # which would come of listing all that there is, too
            mode = mode if is_allowed else self.mode
        known = self._remembered(problem, device, policy, mode)
        if known is not None:
            return known
        key = _question(problem, device, policy, None)
        longer_us = self._longer_us.get(key)
        with self._beside.searching():
            found = find(problem, device, policy, mode=mode, store=self.store, beside=self._beside, budget_us=longer_us)
        self._leave_open(key, found)
        return self._chosen_of(found, policy)

    def _leave_open(self, key: Question, found: Findings) -> None:
        """Remember what the search had no time for, and what it was not sure of."""
        self._rivals.pop(key, None)
        own = found.baseline
        if own is None:
            return
        if own.too_long_us is not None and not key.fixed and key not in self._longer_us:
            self._too_long[key] = own.too_long_us
        better = rival(found.verdicts, own, found.policy) if found.choice in (None, own) else None
        if better is not None:
            self._rivals[key] = _choice(better, own, found.device, key.policy)

    def _chosen_of(self, found: Findings, policy: Policy) -> Choice:
        if found.choice is None:
            own = self.torchs_own(found.problem, found.device, found.policy)
            return Choice(unmeasured(found, None if own is None else own.candidate), found.device)
        return _choice(found.choice, found.baseline, found.device, policy)

    def _mode(self, policy: Policy) -> Mode:
        """How much is done for a choice. What PyTorch's flags ask to be the same must not hang on what a quick
        search happens to measure."""
        still = flags.deterministic() and not policy.deterministic
        return Mode.HEURISTIC if self.mode is Mode.QUICK and still else self.mode

    def _remembered(self, problem: ConvProblem, device: DeviceFacts, policy: Policy, mode: Mode) -> Choice | None:
        """What an earlier search leads to, where its findings are to be believed as they are."""
        if settings().trust is not Trust.TRUST:
            return None
        found = remembered(self._asked(problem, device, policy, mode))
        return None if found is None else _choice(found[0].finding, found[1], device, policy)

    def _asked(self, problem: ConvProblem, device: DeviceFacts, policy: Policy, mode: Mode) -> Search:
        """What the store is asked for a call, which any search serves, however short: nobody waits for a longer one."""
        return search_for(problem, device, policy, mode, self.store, Budget(0.0))


def _choice(finding: Finding, own: Finding | None, device: DeviceFacts, policy: Policy) -> Choice:
    return Choice(
        finding.candidate, device, _device_us(finding, policy), _device_us(own, policy),
        _host_us(finding, policy), _host_us(own, policy),
    )  # fmt: skip


_hearers: list[Callable[[], None]] = []


def when_news(then: Callable[[], None]) -> None:
    """Call ``then``, in any thread, whenever a choice may not be the best any more and is to be made anew."""
    _hearers.append(then)


@lru_cache
def session() -> Session:
    """The session of this process, as its environment asks for."""
    return Session(settings().mode, Store.open(settings().store_path, tell=_warn))


@contextmanager
def using(store: Store | Path | str | None) -> Iterator[Store]:
    """The store that a caller named, by itself or by its path, or ``none`` for memory only, or the one of this
    process."""
    if store is None or isinstance(store, Store):
        yield store or session().store
        return
    if not isinstance(store, Path | str):
        raise BadInput(f"`store` must be a Store, its path, or None for the one of this process, got {store!r}")
    with Store.open(store_place("`store`", store) if isinstance(store, str) else store) as opened:
        yield opened
        if opened.note is not None:
            _warn(opened.note)


@cache
def _warn(note: str) -> None:
    """Once: a call that is computed all the same must not be an error, nor go unnoticed that nothing is kept."""
    warnings.warn(note, StoreWarning, stacklevel=2)


def _question(problem: ConvProblem, device: DeviceFacts, policy: Policy, algorithm: str | None) -> Question:
    fixed = policy.deterministic or flags.deterministic()
    switches = (*flags.state(), flags.onednn_enabled())
    return Question(problem, device.torch_name, device.key, policy, algorithm, switches, fixed)


def _device_us(finding: Finding | None, policy: Policy) -> Interval | None:
    return None if finding is None or finding.measurement is None else device_us(finding, policy)


def _host_us(finding: Finding | None, policy: Policy) -> Interval | None:
    return None if finding is None or finding.measurement is None else host_us(finding, policy)


def capturing(device: DeviceFacts) -> bool:
    """Whether what is enqueued on a device is being captured into a graph."""
    return device.kind == "cuda" and torch.cuda.is_current_stream_capturing()


# Never dropped: a captured graph needs the plans that it has seen.
@cache
def _plan(candidate: Candidate, device: DeviceFacts) -> Plan:
    plan = stored_plan(candidate, device, session().store)
    return Ranged(plan) if settings().nvtx else plan
