"""A search that measures: which candidates it takes, and what it knows of them in the end."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from convwright.core.candidate import Candidate, Refusal
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

# One call may take this share of what is left of a budget; longer ones are compared with nothing.
_MOST_AGAIN = 0.05
_IN_THIS_PROCESS = "was not tried: it is compiled in this process, for which only a full search has time"
_NO_TIME = "was not tried: it is compiled in this process, for which there was no time"
# That takes 0.3 to 0.7 s (H200). A search that has less left than this has other uses for it.
_LEFT_FOR_COMPILING_US = 3e6


class Run:
    """One search, to be made once. ``afresh`` measures again what earlier ones have settled; ``most_chains`` is how
    many chains of rewrites are planned, None all there are."""

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
        # Where nothing is known of PyTorch's own call, the times of others are of another moment than its will be.
        own = None if self._baseline is None else self._recall.finding(self._baseline)
        self._afresh = afresh or (self._baseline is not None and (own is None or own.measurement is None))
        self._known: dict[str, Finding] = {}  # filled as candidates are taken
        self._waiting: list[Candidate] = []
        self._lineup = Lineup(
            search.problem, search.device, direct, self._baseline, promising, search.budget,
            rank=search.ranked, most_chains=most_chains, is_built=self._is_built,
            wait=search.kernels.wait if search.kernels is not None and rewrites else lambda: False,
            kernels_of=search.kernels.of if search.kernels is not None else lambda problem: [],
            is_allowed=lambda candidate: listing.objection(candidate, search.policy) is None,
        )  # fmt: skip

    @property
    def listed(self) -> list[Candidate]:
        """All candidates that are known of by now."""
        return self._lineup.listed

    @property
    def refusals(self) -> list[Refusal]:
        """The rewrites that cannot be."""
        return self._lineup.refusals

    def measure(self) -> dict[str, Finding]:
        """Measure, keep what was found out in the store, and give it back by candidate id."""
        search = self._search
        measure = isolation.measure_candidates if search.isolate else measure_candidates
        fresh = measure(self._worth_measuring(self._lineup), self._contest(self._known))
        self.listed.extend(f.candidate for f in fresh if f.candidate not in self.listed)
        # What was checked once is not given up for a later time without a check.
        better = [f for f in fresh if f.candidate.id not in self._known or _is_better(f)]
        self._recall.record(better, search.mode)
        # What is yet to be compiled, was disturbed by other work or had no memory is for the next search.
        if not self._waiting and not search.is_open and not any(finding.is_open for finding in fresh):
            self._recall.record_search(search.mode, self.listed)
        return self._known | {finding.candidate.id: finding for finding in better}

    def glance(self) -> list[Candidate]:
        """What is allowed and need not be compiled, the fastest at a first look before all. Nothing of it is kept."""
        search = self._search
        ready = (
            candidate
            for candidate in self._worth_measuring(self._lineup)
            if listing.objection(candidate, search.policy) is None
            and (not candidate.compiles or self._is_built(candidate))
        )
        return glance(ready, self._contest({}))

    def _contest(self, known: Mapping[str, Finding]) -> SearchInput:
        search = self._search
        hooks = Hooks(self._recall.trying, search.progress, search.wants_energy, self._hear, self._later, self._around)
        return SearchInput(
            search.problem, search.device, search.policy, self._baseline, known, search.mode, search.budget, hooks
        )

    def _hear(self, candidate: Candidate, look_us: float) -> None:
        """What may not be chosen makes nobody look slow."""
        if listing.objection(candidate, self._search.policy) is None:
            self._lineup.hear(candidate, look_us)

    def _worth_measuring(self, listed: Iterable[Candidate]) -> Iterator[Candidate]:
        """What is not settled, after PyTorch's own call, since only times of one search are to be compared."""
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
        """Whether there is time for calls of what is known, and for others beside it."""
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
        """Configurations near one that was fast, which then belong to what is listed."""
        for candidate in listing.variants(best, self._search.device, goes_on):
            if candidate not in self.listed:
                self.listed.append(candidate)
                yield from self._worth_measuring([candidate])


def is_checked(finding: Finding) -> bool:
    """True where a candidate failed, or was timed and its error looked at on as many kinds of data as are needed."""
    measured = finding.measurement
    return finding.failure is not None or (measured is not None and len(measured.errors) >= FEWEST_KINDS)


def _is_better(fresh: Finding) -> bool:
    """Whether a new finding takes the place of one that is known."""
    return is_checked(fresh) and not fresh.unstable


def _is_settled(finding: Finding, search: Search) -> bool:
    """True where nothing more need be found out: what a quick search timed, a full one times again, and who is to have
    its energy measured has to be among the best first."""
    measured = finding.measurement
    if measured is None:
        return is_checked(finding)
    if search.wants_energy and measured.energy_mj is None:
        return False
    thorough = dict(measured.conditions).get("mode") == Mode.FULL
    return is_checked(finding) and (thorough or search.mode is not Mode.FULL)
