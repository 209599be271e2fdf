"""The search itself: first looks at candidates, the best timed side by side, their results checked, and a final.

Nothing wins by one time alone: the final times the best and PyTorch's own call once more, interleaved, in a full search
with fresh inputs and plans that are built anew, and it is that time which counts.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping
from contextlib import nullcontext
from dataclasses import replace

from convwright.core.candidate import Candidate
from convwright.core.finding import Finding
from convwright.core.once import once
from convwright.core.policy import Objective
from convwright.measuring.clock import no_garbage_collection
from convwright.measuring.compare import TIE
from convwright.shortage import SHORTAGES
from convwright.tuning import listing
from convwright.tuning.budget import Budget
from convwright.tuning.choose import Verdict, choose, cost, is_torch, may_be_better, objection, surely_better
from convwright.tuning.prediction import hopeless_us, own_call_us
from convwright.tuning.trials.checks import Checked, Checks
from convwright.tuning.trials.effort import EFFORTS, GLANCE, Effort
from convwright.tuning.trials.extras import with_energy, with_peak
from convwright.tuning.trials.quick_timing import FAILURES, QuickTiming, QuickTimings, failure, none_had
from convwright.tuning.trials.search_input import SEED, SPENT, SearchInput, passed_over
from convwright.tuning.trials.side_by_side import Stopwatch, heat_us, like, with_errors
from convwright.tuning.trials.trial import Trial

# Calls of PyTorch's own and of another that a decision takes: the shortest heat of both, and the least check.
_DECIDING = {"cpu": 12, "cuda": 20}
# Where fewer fit into what is left, no other look is begun, which takes 2.
_FEWEST_CALLS = {kind: 2 + calls for kind, calls in _DECIDING.items()}
# So much is left for the heat and what follows in a hurried search, however long the last look took.
_LEAST_LEFT, _MOST_LEFT = 0.25, 0.6
# So much of a hurried search is for what follows a final, writing down what was found; a final that has no more than so
# much would tell nothing that the heat did not.
_CLOSING, _FINAL = 0.07, 0.03
# What seemed to take so many times as long as PyTorch's own call is not timed beside it, and what took so many times as
# long side by side may still turn out to be better.
_SLOW, _NEAR = 2.0, 1.1
# Of all that are checked in a search with time, at least so many are.
_FEWEST_CHECKED = 2
# Without time for so many calls of each there is no final.
_FEWEST_IN_FINAL = 4
# What may beat PyTorch's own call, but not surely, is timed again with it: so many, for such a share of what is left.
_RIVALS, _OVERTIME = 2, 0.3
# Python looks for garbage in searches that are longer than this.
_COLLECTING_US = 1e6
_ONCE = "AMBIGUOUS: it was timed once only, since those that seemed better did not win twice"
TOO_LONG = "was not tried: PyTorch's own call takes"


def measure_candidates(candidates: Iterable[Candidate], contest: SearchInput) -> list[Finding]:
    """What was found out about each candidate, in the order in which they come, which begins with PyTorch's own call;
    then about what stands near the best of them."""
    effort, budget = EFFORTS[contest.mode], contest.budget
    own_us = 0.0 if contest.baseline is None else own_call_us(contest.baseline, contest.device)
    if effort.hurried and own_us * _FEWEST_CALLS[contest.device.kind] > budget.total_us:
        why = _too_long(f"at least {own_us / 1e3:.3g}", contest)
        return [Finding(each, note=why) for each in candidates]
    with no_garbage_collection() if budget.total_us < _COLLECTING_US else nullcontext():
        try:
            trials = Trials(contest, effort)
        except SHORTAGES as error:
            return none_had(candidates, error)
        return trials.run(candidates)


def glance(candidates: Iterable[Candidate], contest: SearchInput) -> list[Candidate]:
    """Those that could be run within the budget, the fastest at a first look before all; none where memory is too short
    for their operands. Nothing is timed or checked."""
    try:
        trials = Trials(contest, GLANCE)
    except SHORTAGES as error:
        none_had((), error)
        return []
    trials.look(candidates)
    return sorted(trials.looks.looked, key=trials.looks.cost_us)


class Trials:
    """One search on the way to its findings."""

    def __init__(self, contest: SearchInput, effort: Effort) -> None:
        self.contest, self.effort, self.budget, self.progress = contest, effort, contest.budget, contest.hooks.progress
        self.on, begun_us = contest.device.kind, self.budget.now_us()
        self.bench = contest.bench()
        self.making_us = self.budget.now_us() - begun_us
        patience_us = self.budget.total_us * (1 / _FEWEST_CALLS[self.on] if effort.hurried else effort.patience)
        self.looks = QuickTimings(
            self.bench, self.budget, contest.policy, contest.hooks.trying, patience_us=patience_us
        )
        self.stopwatch = Stopwatch(self.bench)
        self.timed: dict[Candidate, Finding] = {}
        self.passed: dict[Candidate, str] = {}
        self.wrong: dict[Candidate, Checked] = {}  # what was seen to be wrong before anything was timed

    def run(self, candidates: Iterable[Candidate]) -> list[Finding]:
        order = self.look(candidates)
        order += self._look_around()
        if self.effort.hurried:
            self.budget.leave(self._least_left)
        slowness = self._time_side_by_side()
        if self._is_held_against_something:
            right = self._check()
            self._time_finalists(right, slowness)
        return [self._finding(candidate) for candidate in order]

    # First looks.

    def look(self, candidates: Iterable[Candidate]) -> list[Candidate]:
        """Look at candidates for as long as there is time, at those that cannot win last; all of them, in their
        order."""
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
            self.contest.hooks.looked(candidate, self.looks.cost_us(candidate))

    def _needs_more_than_was_seen(self, candidate: Candidate) -> float | None:
        """Libraries load what they launch, which may take most of the budget: what cannot win is not worth it."""
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
        """Where a share of the budget is spent, or too little is left to compare anything."""
        call_us, looked = self._own_call_us, self.looks.looked
        if self.effort.hurried and call_us is not None and call_us * _FEWEST_CALLS[self.on] > self.budget.left_us:
            if looked.keys() - {self.contest.baseline}:
                return SPENT
            if self._is_disturbed:
                return f"was not tried: PyTorch's own call took {call_us / 1e3:.3g} ms, and other work disturbed it"
            is_long = (2 + _FEWEST_CALLS[self.on]) * call_us > self.budget.total_us  # with its own look
            return _too_long(f"{call_us / 1e3:.3g}", self.contest) if is_long else SPENT
        share = self.effort.looking_late if candidate.compiles else self.effort.looking
        may_begin = self.budget.has(1 - share) or (not looked and not self.effort.hurried)
        return None if may_begin else SPENT

    @property
    def _own_call_us(self) -> float | None:
        """What PyTorch's own call takes, as far as that is known."""
        if self._own is not None:
            return self._own.call_us
        known = self.contest.known_baseline()
        return known.measurement.device_us.value if known is not None and known.measurement is not None else None

    @property
    def _own(self) -> QuickTiming | None:
        """The look at PyTorch's own call."""
        baseline = self.contest.baseline
        return None if baseline is None else self.looks.looked.get(baseline)

    @property
    def _is_disturbed(self) -> bool:
        """Whether other work disturbed every look at PyTorch's own call."""
        return self._own is not None and self._own.disturbed

    def _look_around(self) -> list[Candidate]:
        """What was looked at of other configurations of the fastest algorithms that are not seen to be wrong."""
        around: list[Candidate] = []
        walked = 0
        for best in self._fastest_of_each_algorithm() if self.effort.walked else ():
            time = self._time_to_walk(self.effort.walked - walked)
            for place, candidate in enumerate(self.contest.hooks.around(best)):
                if time.left_us <= 0:
                    break
                around.append(candidate)
                # Few algorithms have others, so that it is asked of those alone.
                if place == 1 and self._is_seen_to_be_wrong(best):
                    self.passed[candidate] = f"was not tried: {best.id} is wrong"
                    break
                self.progress("turning knobs", walked, self.effort.walked)
                later = self.contest.hooks.later(candidate) if candidate.compiles else None
                if later is None:
                    self._look_at(candidate)
                else:
                    self.passed[candidate] = later
                walked += place == 1
            if walked == self.effort.walked:
                break
        return around

    def _time_to_walk(self, algorithms: int) -> Budget:
        """An equal share for each of so many algorithms, of what is left for looking."""
        share = self.effort.looking + self.effort.walking
        left_us = self.budget.left_us - (1 - share) * self.budget.total_us
        return Budget(max(left_us, 0.0) / algorithms, now_us=self.budget.now_us)

    def _fastest_of_each_algorithm(self) -> list[Candidate]:
        """Those that may win, without what is rewritten."""
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
        """What was looked at but PyTorch's own call, the most promising first."""
        by_workspace = self.contest.policy.objective is Objective.WORKSPACE

        def promise(candidate: Candidate) -> tuple[float, float]:
            nbytes = self.looks.looked[candidate].trial.plan.workspace_bytes if by_workspace else 0
            return nbytes, self.looks.cost_us(candidate)

        others = [each for each in self.looks.looked if each != self.contest.baseline and not is_torch(each)]
        return sorted(others, key=promise)

    def _may_win(self, candidate: Candidate) -> bool:
        """Whether it is worth timing beside PyTorch's own call."""
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
        """Whether PyTorch's own call may be chosen, so that others have to be better."""
        own = self.contest.baseline
        return own is not None and listing.objection(own, self.contest.policy) is None

    @property
    def _least_left(self) -> float:
        """The share of the budget that a decision takes."""
        needed_us = _DECIDING[self.on] * (self._own_call_us or 0.0)
        return min(max(needed_us / self.budget.total_us, _LEAST_LEFT), _MOST_LEFT)

    # Side by side.

    def _time_side_by_side(self) -> float:
        """Time PyTorch's own call and the best; how many times longer that took than was reckoned."""
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
        """PyTorch's own call, and of those that look best as many as there is time for."""
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
        """What the least of a heat takes of a candidate."""
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
        """Whether PyTorch's own call was timed with the others, or there is none, or it is known."""
        return self._own is None or self.contest.baseline in self.timed

    # Checks.

    def _checks(self, *, whole_within_us: float) -> Checks:
        own = None if self._own is None else self._own.trial
        return Checks(
            self.bench, self.contest.policy, seed=SEED, own=own, known=self.contest.known_baseline(),
            whole_within_us=whole_within_us,
        )  # fmt: skip

    def _check(self) -> list[Candidate]:
        """Those that are right, by what they cost: all that time allows, or in a hurry the first that seems better than
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
            if objection(self.timed[candidate], self._base(), policy.by_time) is None:
                right.append(candidate)
                if hurried:
                    break
        return right

    def _check_one(self, candidate: Candidate, checks: Checks) -> bool:
        """Whether a candidate was checked, and did not fail."""
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
        """What was timed side by side, by what it costs. In a hurry only what may be better than PyTorch's own call as
        far as the heat tells: what surely is before the others."""
        policy, base = self.contest.policy, self._base()
        ranked = [
            each for each, finding in self.timed.items()
            if each != self.contest.baseline and finding.measurement is not None and finding.note is None
        ]  # fmt: skip
        ranked.sort(key=lambda candidate: cost(self.timed[candidate], policy).value)
        if not self.effort.hurried or base is None or base.measurement is None or not self._is_own_allowed:
            return ranked
        least = cost(base, policy)
        near = [candidate for candidate in ranked if cost(self.timed[candidate], policy).value < _NEAR * least.value]
        near = [candidate for candidate in near if cost(self.timed[candidate], policy).low < (1 - TIE) * least.high]
        return sorted(near, key=lambda candidate: not surely_better(self.timed[candidate], base, policy))

    # The final.

    def _time_finalists(self, right: list[Candidate], slowness: float) -> None:
        """The best and PyTorch's own call as precisely as there is time for, with what else was asked of them."""
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
        """Who seems better than PyTorch's own call, and would win, since those that seemed best did not win twice."""
        while (rows := self._verdicts()) and rows[0].won and self._own is not None:
            first = rows[0].finding
            if first.candidate in finalists or first.measurement is None:
                return
            doubtful = replace(first.measurement, doubt=_ONCE)
            self.timed[first.candidate] = replace(first, measurement=doubtful)

    def _time_extras(self, trials: Mapping[Candidate, Trial], stopwatch: Stopwatch) -> None:
        """Memory, and energy where it is asked for."""
        for done, (candidate, trial) in enumerate(trials.items()):
            self.timed[candidate] = with_peak(self.timed[candidate], trial)
            if self.contest.hooks.energy:
                self.progress("energy", done, len(trials))
                seconds = self.budget.left_us / 1e6 / (len(trials) - done)
                self.timed[candidate] = with_energy(self.timed[candidate], trial, stopwatch, seconds)

    def _anew(self, finalists: list[Candidate]) -> tuple[dict[Candidate, Trial], Stopwatch]:
        """Their trials on fresh inputs, with plans that are built again; in a hurry, and without memory for that, those
        that there are."""
        trials = {candidate: self.looks.looked[candidate].trial for candidate in finalists}
        if self.effort.hurried:
            return trials, self.stopwatch
        try:
            bench = self.contest.bench(SEED + 1)
        except SHORTAGES as error:
            none_had((), error)
            return trials, self.stopwatch
        again = QuickTimings(bench, self.budget, self.contest.policy, self.contest.hooks.trying)
        for candidate in finalists:
            again.at(candidate)
        self.timed |= again.failed
        return {candidate: look.trial for candidate, look in again.looked.items()}, Stopwatch(bench)

    def _final(self, trials: Iterable[Trial], stopwatch: Stopwatch, within_us: float) -> None:
        self.progress("final", 0, 1)
        for candidate, finding in stopwatch.heat(trials, within_us).items():
            self.timed[candidate] = like(finding, self.timed[candidate])

    def _left_open(self) -> list[Candidate]:
        """PyTorch's own call and the best of those that may beat it; none where it is known who wins."""
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
        """By the times that are known so far."""
        return choose(list(self.timed.values()), self._base(), self.contest.policy.by_time)

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


def _too_long(call_ms: str, contest: SearchInput) -> str:
    """Why nothing is tried where PyTorch's own call takes so long."""
    within_ms = contest.budget.total_us / 1e3
    return f"{TOO_LONG} {call_ms} ms, too long to compare it with anything within {within_ms:.3g} ms"
