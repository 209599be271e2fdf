"""A measuring search: which candidates it takes, and what it knows of them at the end."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from convwright.core.candidate import Candidate
from convwright.core.finding import Finding
from convwright.settings import Mode
from convwright.tuning import listing
from convwright.tuning.choose import is_torch
from convwright.tuning.compile_queue import is_compiled_apart
from convwright.tuning.kernels import is_for_now
from convwright.tuning.lineup import Lineup
from convwright.tuning.search import Search, baseline_of
from convwright.tuning.trials import isolation
from convwright.tuning.trials.checks import FEWEST_KINDS
from convwright.tuning.trials.first_looks import glance
from convwright.tuning.trials.measure import measure_candidates
from convwright.tuning.trials.search_input import Hooks, SearchInput

# A known candidate is timed again if one call takes at most this share of the remaining budget.
_MOST_AGAIN = 0.05
_IN_THIS_PROCESS = "was not tried: it is compiled in this process, for which only a full search has time"
_NO_TIME = "was not tried: it is compiled in this process, for which there was no time"
# Compiling here takes 0.3 to 0.7 s (H200). A search with less time left has better uses for it.
_LEFT_FOR_COMPILING_US = 3e6


class Run:
    """One search, run once. ``afresh`` measures settled candidates again. ``most_chains`` limits the chains of
    rewrites, None means all."""

    def __init__(
        self,
        search: Search,
        direct: Sequence[Candidate],
        promising: listing.Promising,
        *,
        rewrites: bool,
        most_chains: int | None,
        afresh: bool,
    ) -> None:
        self._search = search
        self._recall = search.recall(rewrites=rewrites)
        self._baseline = baseline_of(direct, search.policy)
        # If PyTorch's own call has no known time, known times of others cannot be compared with its new one.
        own = None if self._baseline is None else self._recall.finding(self._baseline)
        self._afresh = afresh or (self._baseline is not None and (own is None or own.measurement is None))
        self._known: dict[str, Finding] = {}  # filled as candidates are taken
        self._waiting: list[Candidate] = []
        self.lineup = Lineup(
            search.problem, search.device, direct, self._baseline, promising, search.budget,
            rank=search.ranked, most_chains=most_chains, is_built=self._is_built,
            wait=search.kernels.wait if search.kernels is not None and rewrites else lambda: False,
            kernels_of=search.kernels.of if search.kernels is not None else lambda problem: [],
            is_allowed=lambda candidate: listing.objection(candidate, search.policy) is None,
        )  # fmt: skip

    def measure(self) -> dict[str, Finding]:
        """Measure, store the findings, and return them by candidate id."""
        search = self._search
        measure = isolation.measure_candidates if search.isolate else measure_candidates
        fresh = measure(self._worth_measuring(self.lineup), self._contest(self._known))
        self.lineup.listed.extend(f.candidate for f in fresh if f.candidate not in self.lineup.listed)
        # A checked finding is not replaced by a later time without a check.
        better = [f for f in fresh if f.candidate.id not in self._known or (is_checked(f) and not f.unstable)]
        self._recall.record(better, search.mode)
        # Kernels still compiling, disturbed times and lack of memory leave work for the next search.
        if not self._waiting and not search.is_open and not any(finding.is_open for finding in fresh):
            self._recall.record_search(search.mode, self.lineup.listed)
        return self._known | {finding.candidate.id: finding for finding in better}

    def glance(self) -> list[Candidate]:
        """Allowed candidates that need no compiler, fastest first by quick timing. Stores nothing."""
        search = self._search
        ready = (
            candidate
            for candidate in self._worth_measuring(self.lineup)
            if listing.objection(candidate, search.policy) is None
            and (not candidate.compiles or self._is_built(candidate))
        )
        return glance(ready, self._contest({}))

    def _contest(self, known: Mapping[str, Finding]) -> SearchInput:
        search = self._search
        hooks = Hooks(self._recall.trying, search.progress, search.wants_energy, self._hear, self._later, self._around)
        return SearchInput(
            search.problem, search.device, search.policy, self._baseline, known, search.mode, search.budget, hooks,
            tolerate_load=search.tolerate_load,
        )  # fmt: skip

    def _hear(self, candidate: Candidate, look_us: float) -> None:
        """Pass on a time, unless the policy forbids the candidate: its time says nothing about its backend."""
        if listing.objection(candidate, self._search.policy) is None:
            self.lineup.hear(candidate, look_us)

    def _worth_measuring(self, listed: Iterable[Candidate]) -> Iterator[Candidate]:
        """Candidates that are not settled, after PyTorch's own call, since only times of one search are comparable."""
        own: Candidate | None = None
        for candidate in listed:
            finding = self._recall.finding(candidate)
            if finding is not None and not (self._afresh and finding.failure is None):
                self._known[candidate.id] = finding
                if _is_settled(finding, self._search):
                    own = candidate if candidate == self._baseline and self._can_be_timed_again(finding) else own
                    continue
            if is_torch(candidate) or listing.objection(candidate, self._search.policy) is None:
                if own is not None:
                    yield own
                    own = None
                yield candidate

    def _can_be_timed_again(self, finding: Finding) -> bool:
        """Whether there is time to measure a known candidate again, beside others."""
        measured = finding.measurement
        return measured is not None and measured.device_us.value <= _MOST_AGAIN * self._search.budget.left_us

    def _is_built(self, candidate: Candidate) -> bool:
        kernels = self._search.kernels
        return kernels is not None and kernels.is_built(candidate)

    def _later(self, candidate: Candidate) -> str | None:
        kernels, search = self._search.kernels, self._search
        if not is_compiled_apart(candidate):
            if search.mode is Mode.FULL:
                return _NO_TIME if search.budget.left_us < _LEFT_FOR_COMPILING_US else None
            return None if kernels is None else _IN_THIS_PROCESS
        if kernels is None:
            return None
        reason = kernels.reason_to_pass(candidate)
        if reason is not None and is_for_now(reason):
            self._waiting.append(candidate)
        return reason

    def _around(self, best: Candidate, goes_on: Callable[[], bool]) -> Iterator[Candidate]:
        """Configurations close to a fast one; they are added to the list."""
        for candidate in listing.variants(best, self._search.device, goes_on):
            if candidate not in self.lineup.listed:
                self.lineup.listed.append(candidate)
                yield from self._worth_measuring([candidate])


def is_checked(finding: Finding) -> bool:
    """Whether a candidate failed, or was timed and checked on enough kinds of data."""
    measured = finding.measurement
    return finding.failure is not None or (measured is not None and len(measured.errors) >= FEWEST_KINDS)


def _is_settled(finding: Finding, search: Search) -> bool:
    """Whether nothing more is needed of a candidate. A full search repeats a quick search's times, and measuring energy
    needs the candidate among the best."""
    measured = finding.measurement
    if measured is None:
        return is_checked(finding)
    if search.wants_energy and measured.energy_mj is None:
        return False
    thorough = dict(measured.conditions).get("mode") == Mode.FULL
    return is_checked(finding) and (thorough or search.mode is not Mode.FULL)
