"""The search itself: quick timings, the best timed side by side, results checked, and a final.

No candidate wins by a single time. The final times the best and PyTorch's own call again, interleaved; in a full search
it uses fresh inputs and newly built plans. The time of the final counts.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping
from contextlib import nullcontext
from dataclasses import replace

from convwright.core.candidate import Candidate
from convwright.core.finding import Finding
from convwright.core.policy import Objective
from convwright.measuring.clock import no_garbage_collection
from convwright.measuring.compare import TIE
from convwright.prediction.physics import own_call_us
from convwright.shortage import SHORTAGES
from convwright.tuning.by_ratios import by_ratios
from convwright.tuning.choose import Verdict, choose, cost, may_be_better, objection, surely_better
from convwright.tuning.trials.checks import Checks
from convwright.tuning.trials.effort import EFFORTS, Effort
from convwright.tuning.trials.extras import with_energy, with_peak
from convwright.tuning.trials.first_looks import DECIDING, ENOUGH_CALLS, FEWEST_CALLS, FirstLooks, too_long
from convwright.tuning.trials.quick_timing import FAILURES, QuickTimings, failure, none_had
from convwright.tuning.trials.search_input import SEED, SPENT, SearchInput, passed_over
from convwright.tuning.trials.side_by_side import Stopwatch, heat_us, like, with_errors
from convwright.tuning.trials.trial import Trial

# The share left for comparison and final in a hurried search, however long the last quick timing took.
_LEAST_LEFT, _MOST_LEFT = 0.25, 0.6
# In a hurried search, the share reserved after a final for storing findings; and the least share for a final: with less
# it would add nothing.
_CLOSING, _FINAL = 0.07, 0.03
# A candidate up to this many times slower than PyTorch's own call, side by side, may still turn out better.
_NEAR = 1.1
# If there is time, at least this many candidates are checked.
_FEWEST_CHECKED = 2
# If not so many calls of each fit, there is no final.
_FEWEST_IN_FINAL = 4
# Candidates that may beat PyTorch's own call, but not surely, are timed again with it: how many, and for what share.
_RIVALS, _OVERTIME = 2, 0.3
# Garbage collection stays on in searches longer than this.
_COLLECTING_US = 1e6
_ONCE = "AMBIGUOUS: it was timed once only, since those that seemed better did not win twice"


def measure_candidates(candidates: Iterable[Candidate], contest: SearchInput) -> list[Finding]:
    """The findings of all candidates, in the order given, which begins with PyTorch's own call; then those of
    configurations close to the best."""
    effort, budget = EFFORTS[contest.mode], contest.budget
    own_us = 0.0 if contest.baseline is None else own_call_us(contest.baseline, contest.device)
    budget.stretch(ENOUGH_CALLS * own_us)
    if effort.hurried and own_us * FEWEST_CALLS[contest.device.kind] > budget.total_us:
        why = too_long(f"at least {own_us / 1e3:.3g}", contest)
        return [Finding(each, note=why) for each in candidates]
    with no_garbage_collection() if budget.total_us < _COLLECTING_US else nullcontext():
        try:
            trials = Trials(contest, effort)
        except SHORTAGES as error:
            return none_had(candidates, error)
        return trials.run(candidates)


class Trials(FirstLooks):
    """The state of one search."""

    def __init__(self, contest: SearchInput, effort: Effort) -> None:
        super().__init__(contest, effort)
        self.stopwatch = Stopwatch(self.bench)
        self.timed: dict[Candidate, Finding] = {}

    def run(self, candidates: Iterable[Candidate]) -> list[Finding]:
        order = self.look(candidates)
        order += self.look_around()
        if self.effort.hurried:
            self.budget.leave(self._least_left)
        slowness = self._time_side_by_side()
        if self._is_held_against_something:
            right = self._check()
            self._time_finalists(right, slowness)
        return [self._finding(candidate) for candidate in order]

    @property
    def _least_left(self) -> float:
        """The share of the budget that a decision needs."""
        needed_us = DECIDING[self.on] * (self._own_call_us or 0.0)
        return min(max(needed_us / self.budget.total_us, _LEAST_LEFT), _MOST_LEFT)

    # Side by side.

    def _time_side_by_side(self) -> float:
        """Time PyTorch's own call and the best; returns how many times longer that took than estimated."""
        chosen = self._contenders()
        if not chosen or (self.effort.hurried and not self._fit(chosen, 4)):
            return 1.0
        self.progress("heat", 0, 1)
        begun_us, within_us = self.budget.now_us(), self.budget.left_us * self.effort.heat
        self.timed = self.stopwatch.heat([self.looks.looked[each].trial for each in chosen], within_us)
        reckoned_us = max(within_us, sum(map(self._heat_us, chosen)))
        took_us = self.budget.now_us() - begun_us
        if not self.effort.hurried:
            self._time_the_others_by_their_looks()
        return max(took_us / reckoned_us, 1.0)

    def _contenders(self) -> list[Candidate]:
        """PyTorch's own call, and as many of the best as there is time for."""
        baseline = self.contest.baseline
        chosen = [] if baseline is None or self._own is None else [baseline]
        for candidate in filter(self._may_win, self._ranked()):
            if len(chosen) > self.effort.in_heat:
                break
            more = [*chosen, candidate]
            share = 1.0 if len(more) <= 1 + self.effort.fewest_in_heat else self.effort.heat
            if sum(map(self._heat_us, more)) <= share * self.budget.left_us:
                chosen = more
        return chosen

    def _heat_us(self, candidate: Candidate) -> float:
        """The least time that a candidate takes in a comparison."""
        return heat_us(self.looks.looked[candidate], self.effort.heat_calls[self.on], self.on)

    def _fit(self, candidates: Iterable[Candidate], calls: float) -> bool:
        """Whether so many calls of each fit into what is left."""
        return calls * sum(self.looks.looked[each].call_us for each in candidates) <= self.budget.left_us

    def _time_the_others_by_their_looks(self) -> None:
        for candidate, look in self.looks.looked.items():
            if candidate not in self.timed and not look.cold:
                found = self.stopwatch.of_look(look, self.looks.unstable(candidate) if look.disturbed else None)
                self.timed[candidate] = replace(found, note=self.looks.passed_over(candidate).note)
                if candidate in self.wrong:
                    checked = self.wrong[candidate]
                    self.timed[candidate] = with_errors(found, checked.errors, checked.where)

    @property
    def _is_held_against_something(self) -> bool:
        """Whether PyTorch's own call was timed too, is known, or does not exist."""
        return self._own is None or self.contest.baseline in self.timed

    # Checks.

    def _check(self) -> list[Candidate]:
        """The right candidates by cost: as many as time allows, or in a hurry the first that seems better than
        PyTorch's own call."""
        hurried, policy = self.effort.hurried, self.contest.policy
        checks = self._checks(whole_within_us=0.0 if hurried else self.budget.total_us)
        within, promising, right = self.budget.part(self.effort.checking), self._promising(), list[Candidate]()
        if not hurried and self.contest.baseline is not None and self._own is not None:
            self._check_one(self.contest.baseline, checks)
        for done, candidate in enumerate(promising):
            if not hurried and done >= _FEWEST_CHECKED and within.left_us <= 0:
                break
            self.progress("check", done, len(promising))
            if not self._check_one(candidate, checks):
                continue
            compared, base = self._compared()
            if objection(compared[candidate], base, policy.by_time) is None:
                right.append(candidate)
                if hurried:
                    break
        return right

    def _check_one(self, candidate: Candidate, checks: Checks) -> bool:
        """Check a candidate; whether it was checked and did not fail."""
        look, finding, baseline = self.looks.looked[candidate], self.timed[candidate], self.contest.baseline
        both_us = look.call_us + (0.0 if self._own is None else self._own.call_us)
        if not checks.fit(look.trial, self.budget, self.making_us + both_us / 2):
            self.timed[candidate] = replace(finding, note="was timed, but there was no time to look at its error")
            return False
        if baseline not in (None, candidate) and self._own is not None and checks.of_own is None:
            assert baseline is not None
            if not self._check_one(baseline, checks):
                return False
        try:
            checked = checks.check(look.trial, self.budget)
        except FAILURES as error:
            self.timed[candidate] = failure(candidate, error, self.bench.device)
            return False
        if checked.enough:
            self.timed[candidate] = with_errors(finding, checked.errors, checked.where)
        if checked.wrong:
            self.looks.ruled_out.add(candidate)
        return True

    def _base(self) -> Finding | None:
        own = self.timed.get(self.contest.baseline) if self.contest.baseline is not None else None
        return own or self.contest.known_baseline()

    def _promising(self) -> list[Candidate]:
        """Timed candidates by cost. In a hurry only those that may be better than PyTorch's own call, surely better
        ones first."""
        policy, (compared, base) = self.contest.policy, self._compared()
        ranked = [
            each for each, finding in compared.items()
            if each != self.contest.baseline and finding.measurement is not None and finding.note is None
        ]  # fmt: skip
        ranked.sort(key=lambda candidate: cost(compared[candidate], policy).value)
        if not self.effort.hurried or base is None or base.measurement is None or not self._is_own_allowed:
            return ranked
        least = cost(base, policy)
        near = [candidate for candidate in ranked if cost(compared[candidate], policy).value < _NEAR * least.value]
        near = [candidate for candidate in near if cost(compared[candidate], policy).low < (1 - TIE) * least.high]
        return sorted(near, key=lambda candidate: not surely_better(compared[candidate], base, policy))

    # The final.

    def _time_finalists(self, right: list[Candidate], slowness: float) -> None:
        """Time the best and PyTorch's own call as precisely as time allows, and measure extras."""
        effort, energy = self.effort, self.contest.hooks.energy
        finalists = right[: effort.finalists]
        if not finalists and effort.hurried:
            return
        if self._own is not None and self.contest.baseline is not None:
            finalists = [self.contest.baseline, *finalists]
        left_us = self.budget.left_us - _CLOSING * self.budget.total_us
        needed_us = max(_FINAL * self.budget.total_us, slowness * sum(map(self._heat_us, finalists)))
        if left_us < needed_us if effort.hurried else not self._fit(finalists, _FEWEST_IN_FINAL):
            return
        trials, stopwatch = self._anew(finalists)
        self._final(trials.values(), stopwatch, left_us * (effort.final / 2 if energy else effort.final))
        for _ in range(0 if energy else effort.overtimes):
            rivals = [trials[each] for each in self._left_open() if each in trials]
            if len(rivals) > 1:
                self._final(rivals, stopwatch, self.budget.left_us * _OVERTIME)
        if not effort.hurried:
            self._doubt_who_was_timed_once(trials)
            self._time_extras(trials, stopwatch)

    def _doubt_who_was_timed_once(self, finalists: Container[Candidate]) -> None:
        """Mark as ambiguous those that seem better than PyTorch's own call but were timed only once."""
        while (rows := self._verdicts()) and rows[0].won and self._own is not None:
            first = self.timed[rows[0].finding.candidate]
            if first.candidate in finalists or first.measurement is None:
                return
            # Without its ratio a time that is unstable decides nothing.
            doubtful = replace(first.measurement, doubt=first.unstable or _ONCE, paired=None)
            self.timed[first.candidate] = replace(first, measurement=doubtful)

    def _time_extras(self, trials: Mapping[Candidate, Trial], stopwatch: Stopwatch) -> None:
        """Measure memory, and energy on request."""
        for done, (candidate, trial) in enumerate(trials.items()):
            self.timed[candidate] = with_peak(self.timed[candidate], trial)
            if self.contest.hooks.energy:
                self.progress("energy", done, len(trials))
                seconds = self.budget.left_us / 1e6 / (len(trials) - done)
                self.timed[candidate] = with_energy(self.timed[candidate], trial, stopwatch, seconds)

    def _anew(self, finalists: list[Candidate]) -> tuple[dict[Candidate, Trial], Stopwatch]:
        """New trials with fresh inputs and newly built plans; in a hurry, or if memory is short, the existing ones."""
        trials = {candidate: self.looks.looked[candidate].trial for candidate in finalists}
        if self.effort.hurried:
            return trials, self.stopwatch
        try:
            bench = self.contest.bench(SEED + 1)
        except SHORTAGES as error:
            none_had((), error)
            return trials, self.stopwatch
        contest = self.contest
        again = QuickTimings(
            bench, self.budget, contest.policy, contest.hooks.trying, tolerate_load=contest.tolerate_load
        )
        for candidate in finalists:
            again.at(candidate)
        self.timed |= again.failed
        return {candidate: look.trial for candidate, look in again.looked.items()}, Stopwatch(bench)

    def _final(self, trials: Iterable[Trial], stopwatch: Stopwatch, within_us: float) -> None:
        self.progress("final", 0, 1)
        for candidate, finding in stopwatch.heat(trials, within_us).items():
            self.timed[candidate] = like(finding, self.timed[candidate])

    def _left_open(self) -> list[Candidate]:
        """PyTorch's own call and the best candidates that may beat it; empty if the winner is clear."""
        rows = self._verdicts()
        if not rows or not rows[0].won or rows[0].finding.candidate != self.contest.baseline:
            return []
        own = rows[0].finding
        rivals = [
            row.finding.candidate for row in rows[1:]
            if row.allowed and may_be_better(row.finding, own, self.contest.policy.by_time)
        ]  # fmt: skip
        return [own.candidate, *rivals[:_RIVALS]] if rivals else []

    def _verdicts(self) -> tuple[Verdict, ...]:
        """The verdicts by the times known so far."""
        compared, base = self._compared()
        return choose(list(compared.values()), base, self.contest.policy.by_time)

    def _compared(self) -> tuple[Mapping[Candidate, Finding], Finding | None]:
        """What was timed and PyTorch's own call, as they are compared: by ratios where a load is tolerated."""
        base = self._base()
        if not self.contest.tolerate_load or base is None:
            return self.timed, base
        policy = self.contest.policy.by_time
        compared = {row.candidate: row for row in by_ratios(self.timed.values(), base, policy)}
        return compared, compared.get(base.candidate) or by_ratios([base], base, policy)[0]

    # The findings.

    def _finding(self, candidate: Candidate) -> Finding:
        finding = self.timed.get(candidate) if self._is_held_against_something else None
        return finding or self._untimed(candidate)

    def _untimed(self, candidate: Candidate) -> Finding:
        """The finding of a candidate that was not timed."""
        if candidate in self.looks.failed:
            return self.looks.failed[candidate]
        look = self.looks.looked.get(candidate)
        if look is None:
            return passed_over(candidate, self.passed.get(candidate, SPENT))
        if candidate == self.contest.baseline and not look.disturbed:
            took_ms = look.call_us / 1e3
            return Finding(candidate, note=f"was not timed: a call takes about {took_ms:.3g} ms, the budget was spent")
        if self.contest.policy.objective is Objective.WORKSPACE:
            nbytes = look.trial.plan.workspace_bytes
            return Finding(candidate, note=f"was not timed: it needs {nbytes:,} bytes of workspace, and others no more")
        return self.looks.passed_over(candidate)
