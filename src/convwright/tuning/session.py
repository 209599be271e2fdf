"""The answers of this process: for each question, the candidate to run. One store, one mode, one record per question.

A question has two answers. An eager call counts the additional host time of a choice; a captured call counts device
time alone. Both follow from the same findings, and both are known before any capture.
"""

from __future__ import annotations

import threading
import warnings
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache, lru_cache, partial
from pathlib import Path
from time import perf_counter
from typing import NamedTuple

import torch

from convwright import flags
from convwright.core.candidate import Candidate
from convwright.core.device import DeviceFacts
from convwright.core.finding import Finding, Interval
from convwright.core.kinds.problem import Problem
from convwright.core.plan import Plan
from convwright.core.policy import Policy
from convwright.core.record import Record
from convwright.errors import BadInput, Refused, StoreWarning
from convwright.forking import in_child
from convwright.measuring.ranges import Ranged
from convwright.settings import Mode, Trust, settings, store_place
from convwright.store.store import Store
from convwright.tuning import listing
from convwright.tuning.asked import named, permitted
from convwright.tuning.budget import Budget
from convwright.tuning.choose import Eager, call_us, choose, is_torch
from convwright.tuning.compile_queue import compile_queue
from convwright.tuning.find import Findings, find, resolved
from convwright.tuning.predicted_search import eager_choice
from convwright.tuning.remembered import known
from convwright.tuning.search import Search, check_objective, search_for
from convwright.tuning.stored_plan import stored_plan
from convwright.tuning.unmeasured import unmeasured

# Kinds of device on which calls search. On a CPU they use what `tune` has found.
SEARCHED = ("cuda",)
# How long a single request waits for compilers.
_PATIENCE_S = 10.0
# A search that other work made inconclusive is not repeated for this long.
_BUSY_S = 600.0
_BUSY = "busy"
# In these modes the order of measurements can affect the choice.
HURRIED = (Mode.QUICK, Mode.PREDICT_TOP)


@dataclass(frozen=True, slots=True, repr=False)
class Choice(Record):
    """The candidate to run, with the device times of its call and PyTorch's own, None if not measured. ``note`` says
    why it replaces the original choice, if it does."""

    candidate: Candidate
    device: DeviceFacts
    device_us: Interval | None = None
    torch_device_us: Interval | None = None
    note: str | None = None

    def __repr__(self) -> str:
        return f"<Choice: {self.candidate.id} for {self.candidate.problem.key} on {self.device.label}>"

    @property
    def is_torch(self) -> bool:
        """Whether the choice is PyTorch's own call under its current flags."""
        return is_torch(self.candidate)

    def plan(self) -> Plan:
        """The candidate ready to run; the same plan at every call."""
        maker: object = listing.member_of(self.candidate.leaf)
        return _plan(self.candidate, self.device, maker)


class Question(NamedTuple):
    """Everything that affects a choice. Two GPUs of one kind are two devices, since a plan belongs to one of them. A
    ``fixed`` choice is never made again, so that deterministic users get equal bits from the first call on. Without
    ``searches`` only the store and PyTorch's own call count. ``is_call`` means that eager calls count additional host
    time."""

    problem: Problem
    torch_name: str | None
    device_key: str
    policy: Policy
    algorithm: str | None
    flags: tuple[object, ...]
    fixed: bool
    searches: bool
    is_call: bool = True


class Answer(NamedTuple):
    """The choices for an eager call and for a captured one. If not ``lasts``, a later call should ask again."""

    eager: Choice
    captured: Choice
    lasts: bool = True


@dataclass(slots=True, eq=False)
class _Record:
    """The record of one question. ``stale`` means that more kernels are compiled by now."""

    answer: Answer | None = None
    stale: bool = False
    lock: threading.RLock = field(default_factory=threading.RLock)


_sessions: weakref.WeakSet[Session] = weakref.WeakSet()


def _begin_in_child() -> None:
    for each in list(_sessions):
        each.begin_in_child()
    for then in compile_queue().lost():
        then()


in_child(_begin_in_child)


class Session:
    """Answers every question once and remembers it. Calls search on the kinds of device in ``searches_on``; searches
    have taken ``spent_us`` so far."""

    def __init__(self, mode: Mode, store: Store) -> None:
        self.mode, self.store, self.searches_on = mode, store, SEARCHED
        self.spent_us = 0.0
        self._records: dict[Question, _Record] = {}
        self._known_devices: dict[str, tuple[int, bool]] = {}
        self._measuring: dict[str | None, threading.RLock] = {}
        _sessions.add(self)

    def answer(
        self,
        problem: Problem,
        device: DeviceFacts,
        policy: Policy,
        algorithm: str | None,
        eager: Eager | None,
        *,
        searches: bool = True,
    ) -> Answer:
        """The choices that ``policy`` and PyTorch's flags allow, or the candidate ``algorithm``, or an error.

        ``eager`` is the rule of an eager call. Without ``searches``, only known findings count.
        """
        key = self._question(problem, device, policy, algorithm)
        return self._answer(key if searches else key._replace(searches=False), device, eager)

    def plan(self, problem: Problem, device: DeviceFacts, policy: Policy) -> Plan:
        """A plan for a single request: searches on any device, and waits for compilers."""
        key = self._question(problem, device, policy, None)._replace(searches=self.mode.measures, is_call=False)
        answer = self._answer(key, device, None)
        if not key.fixed and not capturing(device) and compile_queue().hurry(problem, _PATIENCE_S):
            self._records[key].stale = True
            answer = self._answer(key, device, None)
        return answer.captured.plan()

    def _answer(self, key: Question, device: DeviceFacts, eager: Eager | None) -> Answer:
        """The remembered answer, unless it is time for a new one."""
        if capturing(device) and key.algorithm is None:
            return self._while_capturing(key, device)
        record = self._records.setdefault(key, _Record())
        with record.lock:
            if record.answer is None or record.stale or not record.answer.lasts:
                record.answer = self._answered(key, device, eager)
                record.stale = False
            return record.answer

    @property
    def chosen(self) -> tuple[Choice, ...]:
        """The present choices of eager calls."""
        return tuple(r.answer.eager for r in list(self._records.values()) if r.answer is not None and not r.stale)

    def knows(self, problem: Problem, device: DeviceFacts, policy: Policy) -> bool:
        """Whether a choice for ``problem`` can be made from the store alone."""
        if settings().trust is not Trust.TRUST or self.mode is Mode.OFF:
            return False
        return self._asked(problem, device, policy).recall().is_settled(self.mode)

    def knows_device(self, device: DeviceFacts) -> bool:
        """Whether the store has any finding for a device."""
        seen, known = self._known_devices.get(device.key, (-1, False))
        if not known and seen != self.store.recorded:
            known = self.store.knows(device.key)
            self._known_devices[device.key] = self.store.recorded, known
        return known

    def forget(self) -> None:
        """Answer every question again, from what the store knows by now."""
        self._records.clear()
        self._known_devices.clear()

    def begin_in_child(self) -> None:
        """Continue in a forked child, which does not have its parent's threads for searches and compilers."""
        self._measuring.clear()
        for record in self._records.values():
            record.lock = threading.RLock()

    def torchs_own(self, problem: Problem, device: DeviceFacts, policy: Policy) -> Choice | None:
        """PyTorch's own call under its current flags; None if it has no call, or a faulty one."""
        if problem.dtype.narrow:
            return None
        try:
            return Choice(named("torch/default", problem, device, resolved(policy, problem, device)), device)
        except Refused:
            return None

    def _answered(self, key: Question, device: DeviceFacts, eager: Eager | None) -> Answer:
        """The candidate asked for by name, the store's choice, a search's, or PyTorch's own call."""
        problem, policy = key.problem, key.policy
        if key.algorithm is not None:
            return _same(Choice(permitted(key.algorithm, problem, device, policy), device))
        full = resolved(policy, problem, device)
        own = self.torchs_own(problem, device, policy)
        if own is not None and self.mode is Mode.OFF:
            return _same(own)
        if own is not None and listing.objection(own.candidate, full) is not None:
            own = None
        remembered = self._remembered(key, device, eager)
        if remembered is not None:
            return remembered
        if self.mode.measures:
            check_objective(full, device, self.mode, energy=False)
        if self.mode is Mode.PREDICT:
            return self._predicted(key, device, eager)
        if own is None:
            return self._searched(key, device, eager) if key.searches else self._listed(key, device)
        # A choice that PyTorch's flags require to be repeatable must not depend on the timing of a search.
        if not key.searches or (flags.deterministic() and not policy.deterministic and self.mode in HURRIED):
            return _same(own)
        if self.store.fact(device.key, _BUSY, younger_than_s=_BUSY_S) is not None:
            return Answer(own, own, lasts=False)
        return self._searched(key, device, eager)

    def _searched(self, key: Question, device: DeviceFacts, eager: Eager | None) -> Answer:
        """A search's choice. Searches on one device wait for each other."""
        again = partial(self._reconsider, key.problem)
        with self._measuring.setdefault(device.torch_name, threading.RLock()):
            begun_s = perf_counter()
            found = find(key.problem, device, key.policy, mode=self.mode, store=self.store, then=again)
            self.spent_us += (perf_counter() - begun_s) * 1e6
        answer = self._found(found, key, eager)
        if found.unstable is not None and answer.captured.is_torch:
            self.store.record_fact(device.key, _BUSY, found.unstable)
            return answer._replace(lasts=False)
        return answer

    def _predicted(self, key: Question, device: DeviceFacts, eager: Eager | None) -> Answer:
        """The candidate predicted to be fastest by a model of the device. Nothing runs."""
        found = find(key.problem, device, key.policy, mode=Mode.PREDICT, store=self.store)
        answer = self._found(found, key, None)
        chosen = None if eager is None else eager_choice(found, eager.extra_us)
        return answer if chosen is None else answer._replace(eager=_choice(chosen, found.baseline, device, key.policy))

    def _listed(self, key: Question, device: DeviceFacts) -> Answer:
        """The first allowed candidate of all that are listed."""
        return self._found(find(key.problem, device, key.policy, mode=Mode.HEURISTIC, store=self.store), key, None)

    def _found(self, found: Findings, key: Question, eager: Eager | None) -> Answer:
        own = found.baseline
        if found.choice is None:
            torchs = self.torchs_own(found.problem, found.device, found.policy)
            candidate = unmeasured(found, None if torchs is None else torchs.candidate)
            return _same(Choice(candidate, found.device))
        captured = _choice(found.choice, own, found.device, key.policy)
        if found.mode is Mode.PREDICT:
            return _same(captured)
        verdict = choose([each.finding for each in found.verdicts], own, found.policy, eager)[0]
        return Answer(_choice(verdict.finding, own, found.device, key.policy) if verdict.won else captured, captured)

    def _while_capturing(self, key: Question, device: DeviceFacts) -> Answer:
        """The previous choice, or PyTorch's own call for this once: nothing can be measured during a capture."""
        record = self._records.get(key)
        if record is not None and record.answer is not None:
            return record.answer
        own = self.torchs_own(key.problem, device, key.policy)
        if own is None:
            raise Refused(
                f"nothing was chosen for {key.problem.key} before the capture, during which nothing can be measured: "
                "make the call once before"
            )
        if key.fixed:
            self._records.setdefault(key, _Record()).answer = _same(own)
        return _same(own)

    def _remembered(self, key: Question, device: DeviceFacts, eager: Eager | None) -> Answer | None:
        """The choice from earlier findings, if they can be trusted. On a device on which calls search, it needs a
        finished search. On any other device, any measurement is enough."""
        if settings().trust is not Trust.TRUST:
            return None
        search = self._asked(key.problem, device, key.policy)
        recall = search.recall()
        if key.searches and not recall.is_settled(self.mode):
            return None
        found = known(search, recall, eager)
        if found is None or (best := found.winner(search.policy, None)) is None:
            return None
        in_eager = found.winner(search.policy, eager) or best
        eager_choice, captured = (_choice(each, found.own, device, key.policy) for each in (in_eager, best))
        return Answer(eager_choice, captured)

    def _asked(self, problem: Problem, device: DeviceFacts, policy: Policy) -> Search:
        """The search whose findings a call uses; any search serves, however short, since no call waits for a longer."""
        return search_for(problem, device, policy, self.mode, self.store, Budget(0.0))

    def _question(self, problem: Problem, device: DeviceFacts, policy: Policy, algorithm: str | None) -> Question:
        fixed = policy.deterministic or flags.deterministic()
        switches = (*flags.state(), flags.onednn_enabled())
        searches = self.mode.measures and device.kind in self.searches_on
        return Question(problem, device.torch_name, device.key, policy, algorithm, switches, fixed, searches)

    def _reconsider(self, problem: Problem) -> None:
        """Mark the questions about ``problem`` as stale: more kernels are compiled now."""
        for key, record in list(self._records.items()):
            record.stale |= key.problem == problem and not key.fixed
        _tell_news()


def answer_anew() -> None:
    """Let every session answer its questions again, because the available candidates have changed."""
    for each in list(_sessions):
        each.forget()
    _tell_news()


def _same(choice: Choice) -> Answer:
    return Answer(choice, choice)


def _choice(finding: Finding, own: Finding | None, device: DeviceFacts, policy: Policy) -> Choice:
    return Choice(finding.candidate, device, _call_us(finding, policy), _call_us(own, policy))


def _call_us(finding: Finding | None, policy: Policy) -> Interval | None:
    return None if finding is None or finding.measurement is None else call_us(finding, policy)


_hearers: list[Callable[[], None]] = []


def when_news(then: Callable[[], None]) -> None:
    """Call ``then``, in any thread, whenever a choice may no longer be the best and is to be made again."""
    _hearers.append(then)


def _tell_news() -> None:
    for then in _hearers:
        then()


@lru_cache
def session() -> Session:
    """The session of this process, as its environment asks for."""
    return Session(settings().mode, Store.open(settings().store_path, tell=_warn))


@contextmanager
def using(store: Store | Path | str | None) -> Iterator[Store]:
    """The store that a caller gave, by itself, its path or its URL, or ``none`` for memory only; by default the one of
    this process."""
    if store is None or isinstance(store, Store):
        yield store or session().store
        return
    if not isinstance(store, Path | str):
        raise BadInput(f"`store` must be a Store, its path or URL, or None for this process's own, got {store!r}")
    with Store.open(store_place("`store`", store) if isinstance(store, str) else store) as opened:
        yield opened
        if opened.note is not None:
            _warn(opened.note)


@cache
def _warn(note: str) -> None:
    """Warn once that nothing is kept: the call still succeeds, but that must not go unnoticed."""
    warnings.warn(note, StoreWarning, stacklevel=2)


def capturing(device: DeviceFacts) -> bool:
    """Whether work on a device's current stream is being captured into a graph."""
    return device.kind == "cuda" and torch.cuda.is_current_stream_capturing()


# Never dropped: a captured graph needs its plans. ``maker`` changes when a user registers a kernel again.
@cache
def _plan(candidate: Candidate, device: DeviceFacts, maker: object) -> Plan:
    plan = stored_plan(candidate, device, session().store)
    return Ranged(plan) if settings().nvtx else plan
