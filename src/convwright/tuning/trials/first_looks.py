"""Quick timings: which candidates run, for how long new ones start, and which are worth precise timing."""

from __future__ import annotations

from collections.abc import Iterable

from convwright.core.candidate import Candidate
from convwright.core.once import once
from convwright.core.policy import Objective
from convwright.prediction.physics import hopeless_us
from convwright.shortage import SHORTAGES
from convwright.tuning import listing
from convwright.tuning.budget import Budget
from convwright.tuning.choose import is_torch
from convwright.tuning.trials.checks import Checked, Checks
from convwright.tuning.trials.effort import GLANCE, Effort
from convwright.tuning.trials.quick_timing import QuickTiming, QuickTimings, none_had
from convwright.tuning.trials.search_input import SEED, SPENT, SearchInput

# Calls that a decision needs: the shortest comparison of two candidates, and one check.
DECIDING = {"cpu": 12, "cuda": 20}
# If fewer calls fit into what is left, no other quick timing starts; that itself takes 2.
FEWEST_CALLS = {kind: 2 + calls for kind, calls in DECIDING.items()}
# With time for so many calls a search leaves out no candidate that may win.
ENOUGH_CALLS = 150
# A candidate this many times slower than PyTorch's own call is not timed beside it.
_SLOW = 2.0
# After this many configurations of an algorithm in a row without progress, no more are tried.
_MOST_IN_VAIN = 64


def glance(candidates: Iterable[Candidate], contest: SearchInput) -> list[Candidate]:
    """Candidates that ran within the budget, fastest first; empty if their operands do not fit into memory. Nothing is
    checked or timed precisely."""
    try:
        first = FirstLooks(contest, GLANCE)
    except SHORTAGES as error:
        none_had((), error)
        return []
    first.look(candidates)
    return sorted(first.looks.looked, key=first.looks.cost_us)


class FirstLooks:
    """The state of one search before any precise timing."""

    def __init__(self, contest: SearchInput, effort: Effort) -> None:
        self.contest, self.effort, self.budget, self.progress = contest, effort, contest.budget, contest.hooks.progress
        self.on, begun_us = contest.device.kind, self.budget.now_us()
        self.bench = contest.bench()
        self.making_us = self.budget.now_us() - begun_us
        self.looks = QuickTimings(
            self.bench, self.budget, contest.policy, contest.hooks.trying, patience_us=self._patience_us,
            tolerate_load=contest.tolerate_load,
        )  # fmt: skip
        self.passed: dict[Candidate, str] = {}
        self.wrong: dict[Candidate, Checked] = {}  # found to be wrong before any timing

    @property
    def _patience_us(self) -> float:
        """A call longer than this is not repeated in a quick timing."""
        return self.budget.total_us * (1 / FEWEST_CALLS[self.on] if self.effort.hurried else self.effort.patience)

    def look(self, candidates: Iterable[Candidate]) -> list[Candidate]:
        """Run candidates while time is left. Returns all in order, those that cannot win last."""
        order: list[Candidate] = []
        hopeless: list[Candidate] = []
        for candidate in candidates:
            order.append(candidate)
            reason = None if candidate == self.contest.baseline else self._reason_to_pass(candidate)
            if reason is None and self._needs_more_than_was_seen(candidate) is not None:
                hopeless.append(candidate)
            elif reason is None:
                self._look_at(candidate)
            else:
                self.passed[candidate] = reason
            self.progress("first looks", len(self.looks.looked), len(order))
        for candidate in hopeless:
            if self.budget.has(1 - self.effort.hopeless):
                self._look_at(candidate)
            else:
                needed_us = self._needs_more_than_was_seen(candidate) or 0.0
                seen = f"{self.looks.best_us:.3g} µs were seen"
                self.passed[candidate] = f"was not tried: it needs {needed_us:.3g} µs to move its data, {seen}"
        return order

    def _look_at(self, candidate: Candidate) -> None:
        if self.looks.at(candidate) is not None:
            if candidate == self.contest.baseline:
                self.budget.stretch(ENOUGH_CALLS * self.looks.looked[candidate].call_us)
                self.looks.patience_us = self._patience_us
            self.contest.hooks.looked(candidate, self.looks.cost_us(candidate))

    def _needs_more_than_was_seen(self, candidate: Candidate) -> float | None:
        """The least time of a candidate, if a faster one was seen: loading its kernels may take most of the budget."""
        if candidate.compiles or candidate == self.contest.baseline:
            return None
        return hopeless_us(candidate, self.contest.device, self.looks.best_us)

    def _reason_to_pass(self, candidate: Candidate) -> str | None:
        if self.effort.hurried:
            forbidden = listing.objection(candidate, self.contest.policy)
            if forbidden is not None:
                return f"was not tried: {forbidden}"
            if is_torch(candidate):
                return "was not tried: it is PyTorch with its TF32 flag the other way round"
        links_us = candidate.leaf.links_us
        if links_us > self.effort.linking * self.budget.total_us:
            return f"was not tried: its first run may take a library {links_us / 1e3:,.0f} ms"
        later = self.contest.hooks.later(candidate) if candidate.compiles else None
        return later or self._reason_to_stop(candidate)

    def _reason_to_stop(self, candidate: Candidate) -> str | None:
        """Why quick timings should stop: their share of the budget is spent, or too little is left for a comparison."""
        call_us, looked = self._own_call_us, self.looks.looked
        if self.effort.hurried and call_us is not None and call_us * FEWEST_CALLS[self.on] > self.budget.left_us:
            if looked.keys() - {self.contest.baseline}:
                return SPENT
            if self._is_disturbed:
                return f"was not tried: PyTorch's own call took {call_us / 1e3:.3g} ms, and other work disturbed it"
            is_long = (2 + FEWEST_CALLS[self.on]) * call_us > self.budget.total_us  # including its own quick timing
            return too_long(f"{call_us / 1e3:.3g}", self.contest) if is_long else SPENT
        share = self.effort.looking_late if candidate.compiles else self.effort.looking
        may_begin = self.budget.has(1 - share) or (not looked and not self.effort.hurried)
        return None if may_begin else SPENT

    @property
    def _own_call_us(self) -> float | None:
        """The time of PyTorch's own call, as far as known."""
        if self._own is not None:
            return self._own.call_us
        known = self.contest.known_baseline()
        return known.measurement.device_us.value if known is not None and known.measurement is not None else None

    @property
    def _own(self) -> QuickTiming | None:
        """The quick timing of PyTorch's own call."""
        baseline = self.contest.baseline
        return None if baseline is None else self.looks.looked.get(baseline)

    @property
    def _is_disturbed(self) -> bool:
        """Whether other work disturbed every quick timing of PyTorch's own call."""
        return self._own is not None and self._own.disturbed

    def look_around(self) -> list[Candidate]:
        """Try other configurations of the fastest algorithms; returns those not found to be wrong."""
        around: list[Candidate] = []
        walked = 0
        for best in self._fastest_of_each_algorithm() if self.effort.walked else ():
            time, in_vain, best_us = self._time_to_walk(self.effort.walked - walked), 0, self.looks.cost_us(best)
            for place, candidate in enumerate(self.contest.hooks.around(best, time.has_any)):
                if not time.has_any() or in_vain == _MOST_IN_VAIN:
                    break
                around.append(candidate)
                # Checked as late as possible, since few algorithms have other configurations.
                if place == 1 and self._is_seen_to_be_wrong(best):
                    self.passed[candidate] = f"was not tried: {best.id} is wrong"
                    break
                self.progress("turning knobs", walked, self.effort.walked)
                later = self.contest.hooks.later(candidate) if candidate.compiles else None
                if later is None:
                    self._look_at(candidate)
                else:
                    self.passed[candidate] = later
                is_better = candidate in self.looks.looked and self.looks.cost_us(candidate) < best_us
                in_vain, best_us = (0, self.looks.cost_us(candidate)) if is_better else (in_vain + 1, best_us)
                walked += place == 1
            if walked == self.effort.walked:
                break
        return around

    def _time_to_walk(self, algorithms: int) -> Budget:
        """An equal share of the remaining time for each of so many algorithms."""
        share = self.effort.looking + self.effort.walking
        left_us = self.budget.left_us - (1 - share) * self.budget.total_us
        return Budget(max(left_us, 0.0) / algorithms, now_us=self.budget.now_us)

    def _fastest_of_each_algorithm(self) -> list[Candidate]:
        """The fastest candidate of each algorithm that may win, without rewrites."""
        ranked = [candidate for candidate in self._ranked() if candidate.inner is None and self._may_win(candidate)]
        return list({(c.backend, c.algorithm): c for c in reversed(ranked)}.values())[::-1]

    @once
    def _sampled(self) -> Checks:
        return self._checks(whole_within_us=0.0)

    def _is_seen_to_be_wrong(self, candidate: Candidate) -> bool:
        """Whether some elements of the output rule a candidate out."""
        look = self.looks.looked[candidate]
        if not self._sampled.fit(look.trial, self.budget, look.call_us):
            return False
        checked = self._sampled.check(look.trial, self.budget)
        if checked.wrong:
            self.looks.ruled_out.add(candidate)
            self.wrong[candidate] = checked
        return checked.wrong

    def _ranked(self) -> list[Candidate]:
        """All timed candidates except PyTorch's own call, most promising first."""
        by_workspace = self.contest.policy.objective is Objective.WORKSPACE

        def promise(candidate: Candidate) -> tuple[float, float]:
            nbytes = self.looks.looked[candidate].trial.plan.workspace_bytes if by_workspace else 0
            return nbytes, self.looks.cost_us(candidate)

        others = [each for each in self.looks.looked if each != self.contest.baseline and not is_torch(each)]
        return sorted(others, key=promise)

    def _may_win(self, candidate: Candidate) -> bool:
        """Whether a candidate is worth timing beside PyTorch's own call."""
        look = self.looks.looked[candidate]
        if candidate in self.looks.ruled_out:
            return False
        if self._own is None or look.cold or self.contest.policy.objective is Objective.WORKSPACE:
            return True
        return not self._is_own_allowed or self.looks.cost_us(candidate) < _SLOW * self._own.cost_us(
            self.contest.policy
        )

    @property
    def _is_own_allowed(self) -> bool:
        """Whether PyTorch's own call may be chosen, so that others must be faster."""
        own = self.contest.baseline
        return own is not None and listing.objection(own, self.contest.policy) is None

    def _checks(self, *, whole_within_us: float) -> Checks:
        own = None if self._own is None else self._own.trial
        return Checks(
            self.bench, self.contest.policy, seed=SEED, own=own, known=self.contest.known_baseline(),
            whole_within_us=whole_within_us,
        )  # fmt: skip


def too_long(call_ms: str, contest: SearchInput) -> str:
    """The reason not to try anything when PyTorch's own call takes too long."""
    within_ms = contest.budget.total_us / 1e3
    own = f"PyTorch's own call takes {call_ms} ms"
    return f"was not tried: {own}, too long to compare it with anything within {within_ms:,.0f} ms"
