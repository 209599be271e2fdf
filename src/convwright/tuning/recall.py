"""The store's knowledge of a problem, and what a search adds to it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from time import time

from convwright.core.candidate import Candidate
from convwright.core.device import DeviceFacts
from convwright.core.finding import Finding, Measurement, says_out_of_memory
from convwright.core.kinds.problem import Problem
from convwright.core.observation import Observation, Outcome
from convwright.core.once import once
from convwright.core.policy import Policy
from convwright.settings import BUDGETS_US, Mode
from convwright.store.quarantine import Quarantined
from convwright.store.store import Store
from convwright.store.stored import Stored
from convwright.tuning import listing
from convwright.tuning.choose import is_torch

_WITHIN, _CHOSE = "within µs: ", "chose "
# Modes that find at least as much as each mode.
_AS_THOROUGH = {
    Mode.FULL: (Mode.FULL,),
    Mode.PREDICT_TOP: (Mode.PREDICT_TOP, Mode.QUICK, Mode.FULL),
}


class Recall:
    """The store's findings for one problem on one device, read once. Findings of other versions do not count.
    ``scope`` is what a search covers: the problem itself, or also rewrites of it. If nobody limits the workspace, the
    policy's limit ``follows_memory``. Searches that had less than ``budget_us`` do not count."""

    def __init__(
        self,
        problem: Problem,
        device: DeviceFacts,
        policy: Policy,
        store: Store,
        scope: str,
        *,
        follows_memory: bool = False,
        budget_us: float = 0.0,
    ) -> None:
        self.problem, self.device, self.policy, self.store, self.scope = problem, device, policy, store, scope
        self._follows_memory, self._budget_us = follows_memory, round(budget_us)
        limit = policy.max_workspace_bytes or 0
        self._limit, self._magnitude = f"{limit} bytes", magnitude(limit)

    @once
    def _stored(self) -> Mapping[str, Stored]:
        return {id_: entry for id_, entry in self._entries.items() if entry is not None and not _is_void(entry)}

    @once
    def _entries(self) -> Mapping[str, Stored | None]:
        return self.store.entries(self.problem.key, self.device.key)

    @once
    def _quarantined(self) -> Mapping[str, Quarantined]:
        return self.store.quarantined(self.problem.key, self.device.key)

    def finding(self, candidate: Candidate) -> Finding | None:
        """The finding for a candidate: measured, failed, or quarantined since it crashed a process."""
        entry, bad = self._stored.get(candidate.id), self._quarantined.get(candidate.id)
        if entry is None and bad is None:
            return None
        print_ = listing.fingerprint(candidate, self.device)
        if bad is not None and bad.fingerprint == print_:
            return Finding(candidate, failure=f"is in quarantine: {bad.why}", remembered=True)
        if entry is not None and entry.fingerprint == print_:
            return Finding(candidate, entry.measurement, entry.failure, remembered=True)
        return None

    def known(self, listed: Iterable[Candidate]) -> dict[str, Finding]:
        """The findings for candidates, by id."""
        return {candidate.id: finding for candidate in listed if (finding := self.finding(candidate)) is not None}

    def tried(self, mode: Mode, direct: Sequence[Candidate]) -> tuple[str, ...] | None:
        """The candidates of an earlier search that had the same permission, was at least as thorough and knew all of
        ``direct``; None if there was none."""
        done = [ids for had_us, ids in self._done(mode) if had_us >= self._budget_us]
        if not done:
            return None  # no need to ask what is installed, which may load libraries
        stamps = {*listing.fingerprints(self.device, self.problem.kind), *map(self._stamp, direct)}
        return next((ids for ids in done if stamps <= set(ids)), None)

    def was_hurried(self, mode: Mode) -> bool:
        """Whether an earlier search was as thorough, but had less time than this one."""
        return any(had_us < self._budget_us for had_us, _ in self._done(mode))

    def beyond(self, listed: Iterable[Candidate]) -> list[Candidate]:
        """Candidates with findings in the store that are not ``listed``: rewrites, and configurations that any search
        came upon."""
        known = {candidate.id for candidate in listed}
        named = (
            listing.with_id(id_, self.problem, self.device, self.policy) for id_ in self._stored if id_ not in known
        )
        return [candidate for candidate in named if candidate is not None]

    def is_settled(self, mode: Mode) -> bool:
        """Whether an earlier search with the same permission was at least as thorough and knew every backend in its
        present version."""
        return self.tried(mode, ()) is not None

    def measured(self) -> dict[str, Measurement]:
        """All measurements, of all versions."""
        return {id_: entry.measurement for id_, entry in self._stored.items() if entry.measurement is not None}

    def record(self, fresh: Iterable[Finding], mode: Mode) -> None:
        """Store measurements and failures, but no unstable times, which later processes should not trust."""
        self.store.observe([self._observation(*kept, mode) for kept in self._keep(fresh)])

    def record_errors(self, checked: Iterable[Finding]) -> None:
        """Store the errors of candidates whose times are known: they were not observed once more."""
        self._keep(checked)

    def _keep(self, fresh: Iterable[Finding]) -> list[tuple[Finding, str]]:
        """Store what may be trusted, and return it with the candidates' fingerprints."""
        kept = list[tuple[Finding, str]]()
        for finding in fresh:
            if finding.failure is not None or (finding.measurement is not None and not finding.unstable):
                print_, id_ = listing.fingerprint(finding.candidate, self.device), finding.candidate.id
                self.store.record(self.problem.key, self.device.key, id_, print_, finding.measurement, finding.failure)
                kept.append((finding, print_))
        return kept

    def _observation(self, finding: Finding, fingerprint: str, mode: Mode) -> Observation:
        """What a search observed of a candidate, without the times of single rounds."""
        return Observation(
            candidate=finding.candidate,
            device=self.device.key,
            fingerprint=fingerprint,
            outcome=Outcome.FAILED if finding.measurement is None else Outcome.MEASURED,
            measurement=finding.measurement,
            reason=finding.failure,
            rounds_us=(),
            policy=self.policy,
            mode=str(mode),
            budget_us=float(self._budget_us),
            created=time(),
        )

    def record_search(self, mode: Mode, listed: Iterable[Candidate]) -> None:
        """Record that a search is done, and clear the marks for repeating it."""
        entries = self.store.entries(self.problem.key, self.device.key)
        void = [id_ for id_, entry in entries.items() if _is_void(entry)]
        if void:
            self.store.forget(self.problem.key, self.device.key, void)
        stamps = [*listing.fingerprints(self.device, self.problem.kind), self._limit, *map(self._stamp, listed)]
        stamps.append(f"{_WITHIN}{self._budget_us}")
        scope = self._scope(mode, self._magnitude if self._follows_memory else self._limit)
        self.store.record_search(self.problem.key, self.device.key, scope, stamps)

    def record_prediction(self, chosen: Candidate) -> None:
        """Record that a model chose this candidate without a measurement."""
        scope = self._scope(Mode.PREDICT, self._magnitude if self._follows_memory else self._limit)
        self.store.record_search(self.problem.key, self.device.key, scope, [f"{_CHOSE}{self._stamp(chosen)}"])

    def trying(self, candidate: Candidate) -> AbstractContextManager[None]:
        """Guards a first run against crashes. PyTorch's own call needs no guard: its users trust it anyway."""
        if is_torch(candidate):
            return nullcontext()
        print_ = listing.fingerprint(candidate, self.device)
        return self.store.trying(self.problem.key, self.device.key, candidate.id, print_)

    def _stamp(self, candidate: Candidate) -> str:
        """A candidate with its fingerprint at the time of the trial."""
        return f"{candidate.id} ({listing.fingerprint(candidate, self.device)})"

    def _done(self, mode: Mode) -> list[tuple[float, tuple[str, ...]]]:
        """The candidates of earlier searches that were at least as thorough, and the time of each search."""
        if self._rests_on_void:
            return []
        thorough = _AS_THOROUGH.get(mode, (Mode.QUICK, Mode.FULL))
        return [(_had_us(ids, each), ids) for each in thorough for ids in self._searches(each)]

    @once
    def _rests_on_void(self) -> bool:
        """Whether earlier searches rest on findings that must be measured again."""
        # On an absent device nothing can be measured again.
        return any(_is_void(each) for each in self._entries.values() if each is None or self.device.present)

    def _searches(self, mode: Mode) -> Iterator[tuple[str, ...]]:
        """The candidates of earlier searches with the same permission. A limit that follows free memory changes every
        minute, which does not make a search another one; a limit set by a user counts to the byte."""
        known = (self._limit, self._magnitude)
        exact, rough = (self.store.search(self.problem.key, self.device.key, self._scope(mode, each)) for each in known)
        if exact is not None:
            yield exact
        if rough is not None and (self._follows_memory or self._limit in rough):
            yield rough

    def _scope(self, mode: Mode, workspace: str) -> str:
        return f"{mode} {self.scope} {permission(self.policy, workspace)}"


def _is_void(entry: Stored | None) -> bool:
    """True for an unreadable entry, and for lack of memory, which earlier versions stored as a candidate's failure."""
    return entry is None or (entry.failure is not None and says_out_of_memory(entry.failure))


def _had_us(stamps: Iterable[str], mode: Mode) -> float:
    """The budget of a search. Earlier versions did not record it and used the mode's default.

    >>> _had_us(["triton 3.6", "within µs: 2000000"], Mode.FULL), _had_us([], Mode.QUICK)
    (2000000, 200000.0)
    """
    budgets = (stamp.removeprefix(_WITHIN) for stamp in stamps if stamp.startswith(_WITHIN))
    return next((int(budget) for budget in budgets if budget.isdecimal()), BUDGETS_US[mode])


def permission(policy: Policy, workspace: str) -> str:
    """What searches under ``policy`` may choose, by which objective, and with what ``workspace``: searches with the
    same text are interchangeable."""
    rest = replace(policy, max_workspace_bytes=None, arithmetic=None)
    return f"{rest} {workspace} {','.join(sorted(policy.arithmetic or ()))}"


def magnitude(nbytes: int) -> str:
    """A memory limit, rounded coarsely since free memory changes every minute."""
    return f"2^{nbytes.bit_length()}"
