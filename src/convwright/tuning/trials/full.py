"""Mode full: every permitted candidate is looked at, checked and timed, and who wins has to win twice."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import partial
from math import inf

from convwright.core.candidate import Candidate
from convwright.core.error_rule import objection_to_errors
from convwright.core.finding import Finding, KindError
from convwright.core.policy import Objective
from convwright.measuring.checking.error import ErrorCheck
from convwright.measuring.checking.of_kind import reference_us, sampled_reference, whole_reference
from convwright.shortage import SHORTAGES, is_shortage
from convwright.tuning.budget import Budget
from convwright.tuning.choose import Verdict, choose, may_be_better
from convwright.tuning.prediction import hopeless_us
from convwright.tuning.trials.checks import FEWEST_KINDS, SampledCheck
from convwright.tuning.trials.confirm import confirmed
from convwright.tuning.trials.contest import SEED, SPENT, Contest, passed_over
from convwright.tuning.trials.extras import with_energy, with_peak
from convwright.tuning.trials.heats import Stopwatch, heat_us, like, with_errors
from convwright.tuning.trials.linking import reason_not_to_link
from convwright.tuning.trials.looks import FAILURES, Looks, failure, none_had

# Shares of the budget within which looks may begin, those at problems inside rewrites among them, those at what cannot
# win, and a float64 reference of the whole output has to be made, or else some elements of it have to do.
_LOOKING, _HOPELESS, _REFERENCE = 0.5, 0.25, 0.1
# What a library links at a first run may take such a share.
_LINKING = 0.25
# So many that had to be compiled are looked at up to a later one: in a short search they come late.
_LATE, _LOOKING_AT_LATE = 4, 0.7
# So many algorithms, the fastest of those that have more configurations than are listed, may have these looked at, for
# such a share of the budget more.
_WALKED, _WALKING = 3, 0.1
# Shares of what is then left, within which checks may begin; and then, for all together and for the best. The rest is
# for confirming who wins.
_CHECKING, _HEAT, _FINAL = 0.2, 0.2, 0.5
# PyTorch's own call and the fastest are checked in any case, and some of them timed side by side; of the others so many
# as have time for so many calls of each.
_FEWEST_CHECKED, _FEWEST_TIMED = 2, 4
_HEAT_CALLS = 30
# What takes so many times as long as the best is timed by its looks, and checked on some elements.
_SLOW, _SLOW_RUNS = 5.0, 2
# A call that takes this share of the budget is not repeated at a first look; so much of what is left may be spent on
# repeating those that are not timed side by side.
_PATIENCE, _AGAIN = 0.02, 0.05
_FINALISTS = 4
# Where it is left open whether PyTorch's own call is beaten, it and so many that may beat it are timed for such a share
# of what is left, and so often.
_RIVALS, _OVERTIME, _OVERTIMES = 2, 0.3, 2

# Errors, and on what part of the output they were looked for.
_Checked = tuple[tuple[KindError, ...], str]


def full(candidates: Iterable[Candidate], contest: Contest) -> list[Finding]:
    """What was found out about each candidate, in their order, which begins with PyTorch's own call; then about what
    stands near the best of them."""
    try:
        search = _Full(contest)
    except SHORTAGES as error:
        return none_had(candidates, error)
    order = search.look(candidates)
    order += search.look_around()
    search.time_all(search.check())
    search.time_best()
    return [search.finding(candidate) for candidate in order]


class _Full:
    def __init__(self, contest: Contest) -> None:
        self.contest, self.budget, self.progress = contest, contest.budget, contest.hooks.progress
        self.bench = contest.bench()
        patience_us = _PATIENCE * self.budget.total_us
        self.looks = Looks(self.bench, self.budget, contest.policy, contest.hooks.trying, patience_us=patience_us)
        self.stopwatch = Stopwatch(self.bench)
        self.timed: dict[Candidate, Finding] = {}
        self.passed: dict[Candidate, str] = {}

    def look(self, candidates: Iterable[Candidate]) -> list[Candidate]:
        """Look at candidates for as long as there is time, at the hopeless ones last, since it may take a tenth of a
        second to load them; all of them, in their order."""
        order: list[Candidate] = []
        hopeless: list[Candidate] = []
        for candidate in candidates:
            order.append(candidate)
            if self._is_passed(candidate):
                continue
            if hopeless_us(candidate, self.contest.device, self.looks.best_us) is not None:
                hopeless.append(candidate)
            elif self._has_time_for(candidate):
                self._look_at(candidate)
            self.progress("first looks", len(self.looks.looked), len(order))
        for candidate in hopeless:
            if self.budget.has(1 - _HOPELESS):
                self._look_at(candidate)
                self.progress("first looks", len(self.looks.looked), len(order))
        return order

    def _has_time_for(self, candidate: Candidate) -> bool:
        looked = self.looks.looked
        is_late = candidate.compiles and sum(each.compiles for each in looked) < _LATE
        return not looked or self.budget.has(1 - (_LOOKING_AT_LATE if is_late else _LOOKING))

    def _look_at(self, candidate: Candidate) -> None:
        look = self.looks.at(candidate)
        if look is not None:
            self.contest.hooks.looked(candidate, self.looks.cost_us(candidate))

    def _is_passed(self, candidate: Candidate) -> bool:
        """Whether it has to be compiled, which is not to be done now, or a library would link for too long."""
        later = self.contest.hooks.later
        reason = later(candidate) if candidate.compiles and later is not None else None
        reason = reason or reason_not_to_link(candidate, self.budget, _LINKING)
        if reason is not None:
            self.passed[candidate] = reason
        return reason is not None

    def look_around(self) -> list[Candidate]:
        """What was looked at of other configurations of the fastest algorithms that are not seen to be wrong."""
        around: list[Candidate] = []
        check, walked = SampledCheck(self.bench, self.contest.policy, seed=SEED), 0
        for best in self._fastest_of_each_algorithm():
            time = self._time_to_walk(_WALKED - walked)
            for place, candidate in enumerate(self.contest.hooks.around(best)):
                if time.left_us <= 0:
                    break
                around.append(candidate)
                # Few algorithms have others, so that it is asked of those alone.
                if place == 1 and self._is_seen_to_be_wrong(best, check):
                    self.passed[candidate] = f"was not tried: {best.id} is wrong"
                    break
                self.progress("turning knobs", walked, _WALKED)
                if not self._is_passed(candidate):
                    self._look_at(candidate)
                walked += place == 1
            if walked == _WALKED:
                break
        return around

    def _is_seen_to_be_wrong(self, candidate: Candidate, check: SampledCheck) -> bool:
        """Whether some elements of the output rule a candidate out."""
        looked, baseline = self.looks.looked, self.contest.baseline
        if candidate == baseline:
            return False
        own = looked[baseline] if baseline is not None and baseline in looked else None
        each_us = looked[candidate].call_us + (0.0 if own is None else own.call_us)
        known = self.contest.known_baseline()
        checked = check.check(looked[candidate].trial, None if own is None else own.trial, known, self.budget, each_us)
        if checked.wrong:
            self.looks.ruled_out.add(candidate)
        return checked.wrong

    def _time_to_walk(self, algorithms: int) -> Budget:
        """An equal share for each of so many algorithms, of what is left for looking."""
        left_us = self.budget.left_us - (1 - _LOOKING - _WALKING) * self.budget.total_us
        return Budget(max(left_us, 0.0) / algorithms, now_us=self.budget.now_us)

    def _fastest_of_each_algorithm(self) -> list[Candidate]:
        """Those that may win, without what is rewritten."""
        ranked = [c for c in self._ranked() if c.inner is None and not self._is_slow(c)]
        return list({(c.backend, c.algorithm): c for c in reversed(ranked)}.values())[::-1]

    def check(self) -> dict[Candidate, _Checked]:
        """Errors of all that time allows, PyTorch's own call first and then the fastest, and what was looked at.

        Other configurations of what is found wrong come last: they mostly are wrong as well.
        """
        waiting = self._ranked()
        whole, sampled = self._checks()
        budget, count = self.budget.part(1.0), len(waiting)
        found: dict[Candidate, _Checked] = {}
        wrong: set[tuple[str, ...]] = set()
        while waiting and (len(found) < _FEWEST_CHECKED or budget.has(1 - _CHECKING)):
            self.progress("checks", count - len(waiting), count)
            candidate = next((each for each in waiting if _family(each) not in wrong), waiting[0])
            waiting.remove(candidate)
            run, is_wrong = self.looks.looked[candidate].trial.run, partial(self._is_wrong, candidate, found)
            try:
                check, said = sampled if self._is_slow(candidate) else whole
                try:
                    errors = check.errors(run, is_wrong)
                except SHORTAGES as error:
                    if check is sampled[0] or not is_shortage(error):
                        raise
                    whole = check, said = sampled  # a reference of the whole output takes most of the memory
                    errors = check.errors(run, is_wrong)
                found[candidate] = errors, said
                if is_wrong(errors):
                    self.looks.ruled_out.add(candidate)
                    wrong.add(_family(candidate))
            except FAILURES as error:
                self._fail(candidate, error)
        return found

    def _is_wrong(
        self, candidate: Candidate, found: Mapping[Candidate, _Checked], errors: tuple[KindError, ...]
    ) -> bool:
        """Whether enough kinds of data were looked at to rule a candidate out."""
        if candidate == self.contest.baseline or len(errors) < FEWEST_KINDS:
            return False
        own = self._errors_of_torch(found)
        return objection_to_errors(candidate, errors, own, self.contest.policy) is not None

    def _fail(self, candidate: Candidate, error: BaseException) -> None:
        self.looks.failed[candidate] = failure(candidate, error, self.bench.device)
        self.looks.ruled_out.add(candidate)
        del self.looks.looked[candidate]

    def _checks(self) -> tuple[tuple[ErrorCheck, str], tuple[ErrorCheck, str]]:
        """The check of those that may win, and that of the others; where it takes too long to be thorough, one."""
        problem, where = self.contest.problem, self.bench.device
        sampled = ErrorCheck(problem, where, seed=SEED, reference=sampled_reference), "some elements of the output"
        if reference_us(problem, where) * len(sampled[0].kinds) > _REFERENCE * self.budget.total_us:
            return sampled, sampled
        return (ErrorCheck(problem, where, seed=SEED, reference=whole_reference), "the output"), sampled

    def time_all(self, errors: dict[Candidate, _Checked]) -> None:
        """Those that were checked side by side, as many as have time; the others by their looks."""
        self.progress("heat", 0, 1)
        within_us = self.budget.left_us * _HEAT
        quick = [self.looks.looked[candidate].trial for candidate in self._in_heat(errors, within_us)]
        self.timed = self.stopwatch.heat(quick, within_us)
        spare = self.budget.part(_AGAIN)
        for candidate in [each for each in self._ranked() if each not in self.timed]:
            again_us = self.looks.looked[candidate].call_us * _SLOW_RUNS
            if again_us <= _PATIENCE * self.budget.total_us and (again_us <= spare.left_us or candidate in errors):
                try:
                    again = self.looks.again(candidate, _SLOW_RUNS)
                except FAILURES as error:
                    self._fail(candidate, error)
                    continue
                finding = self.stopwatch.of_look(again, self.looks.unstable(candidate) if again.disturbed else None)
                self.timed[candidate] = replace(finding, note="was timed, but there was no time to look at its error")
        for candidate, (found, said) in errors.items():
            if candidate in self.timed:
                self.timed[candidate] = with_errors(self.timed[candidate], found, said)

    def _in_heat(self, errors: Mapping[Candidate, _Checked], within_us: float) -> list[Candidate]:
        """PyTorch's own call and the best, those that are wrong after all others."""
        contest, base = self.contest, self._errors_of_torch(errors)

        def worth(candidate: Candidate) -> tuple[bool, int]:
            policy, (found, _) = contest.policy, errors[candidate]
            if candidate == contest.baseline:
                return False, 0
            objection = objection_to_errors(candidate, found, base, policy)
            nbytes = self.looks.looked[candidate].trial.plan.workspace_bytes
            return objection is not None, nbytes if policy.objective is Objective.WORKSPACE else 0

        chosen: list[Candidate] = []
        for candidate in sorted((c for c in self._ranked() if c in errors and not self._is_slow(c)), key=worth):
            within_us -= heat_us(self.looks.looked[candidate], _HEAT_CALLS)
            if within_us >= 0 or len(chosen) < _FEWEST_TIMED:
                chosen.append(candidate)
        return chosen

    def _errors_of_torch(self, errors: Mapping[Candidate, _Checked]) -> tuple[KindError, ...] | None:
        """Those of PyTorch's own call, of this search or of an earlier one."""
        baseline, known = self.contest.baseline, self.contest.known_baseline()
        if baseline is not None and baseline in errors:
            return errors[baseline][0]
        return None if known is None or known.measurement is None else known.measurement.errors

    def time_best(self) -> None:
        """The best and PyTorch's own call as precisely as there is time for, with what else was asked of them."""
        share = _FINAL / 2 if self.contest.hooks.energy else _FINAL
        best = self._final(self._finalists(), share)
        for _ in range(0 if self.contest.hooks.energy else _OVERTIMES):
            if rivals := self._left_open():
                best = list(dict.fromkeys((*best, *self._final(rivals, _OVERTIME))))
        for candidate in best:
            self.timed[candidate] = with_peak(self.timed[candidate], self.looks.looked[candidate].trial)
        if self.contest.hooks.energy:
            seconds = self.budget.left_us * _FINAL / 1e6 / max(len(best), 1)
            for done, candidate in enumerate(best):
                self.progress("energy", done, len(best))
                trial = self.looks.looked[candidate].trial
                self.timed[candidate] = with_energy(self.timed[candidate], trial, self.stopwatch, seconds)
        self.timed |= confirmed(self.timed, self.contest)

    def _final(self, among: Iterable[Candidate], share: float) -> list[Candidate]:
        """Those that were timed once more, for a share of what is left; what that tells counts where it tells more."""
        self.progress("final", 0, 1)
        final = self.stopwatch.heat([self.looks.looked[c].trial for c in among], self.budget.left_us * share)
        measured = {c: finding for c, finding in final.items() if finding.measurement is not None}
        self.timed |= {c: finding for c, finding in final.items() if c not in measured}
        if self._is_preciser(measured):
            self.timed |= {c: like(finding, self.timed[c]) for c, finding in measured.items()}
        return list(final)

    def _left_open(self) -> list[Candidate]:
        """PyTorch's own call and the best of those that may beat it; none where it is known who wins."""
        baseline, rows = self.contest.baseline, self._verdicts()
        if not rows or not rows[0].won or rows[0].finding.candidate != baseline:
            return []
        own = rows[0].finding
        rivals = [
            row.finding.candidate for row in rows[1:]
            if row.allowed and may_be_better(row.finding, own, self.contest.policy.by_time)
        ]  # fmt: skip
        return [own.candidate, *rivals[:_RIVALS]] if rivals else []

    def _is_preciser(self, final: Mapping[Candidate, Finding]) -> bool:
        """Whether times of the last heat are known better than before: it may have had too little time."""
        widths = [max(map(_width, each), default=0.0) for each in (final.values(), map(self.timed.get, final))]
        return widths[0] <= widths[1]

    def finding(self, candidate: Candidate) -> Finding:
        if candidate in self.timed:
            return self.timed[candidate]
        if candidate in self.looks.failed:
            return self.looks.failed[candidate]
        if candidate in self.looks.looked:
            return self.looks.passed_over(candidate)
        return passed_over(candidate, self.passed.get(candidate, SPENT))

    def _ranked(self) -> list[Candidate]:
        looks, baseline = self.looks, self.contest.baseline
        return sorted(looks.looked, key=lambda candidate: (candidate != baseline, looks.cost_us(candidate)))

    def _is_slow(self, candidate: Candidate) -> bool:
        return candidate != self.contest.baseline and self.looks.cost_us(candidate) > _SLOW * self.looks.best_us

    def _finalists(self) -> list[Candidate]:
        """The baseline and the best that are allowed."""
        baseline = self.contest.baseline
        allowed = [row.finding.candidate for row in self._verdicts() if row.allowed]
        best = [candidate for candidate in allowed if not self._is_slow(candidate)][:_FINALISTS]
        return best if baseline is None or baseline in best or baseline not in self.timed else [*best, baseline]

    def _verdicts(self) -> tuple[Verdict, ...]:
        """By the times that are known so far."""
        baseline = self.contest.baseline
        own = self.timed.get(baseline) if baseline is not None else None
        return choose(list(self.timed.values()), own or self.contest.known_baseline(), self.contest.policy.by_time)


def _family(candidate: Candidate) -> tuple[str, ...]:
    """What has the same algorithm inside the same rewrites, in whatever configuration."""
    inside = () if candidate.inner is None else _family(candidate.inner)
    return candidate.backend, candidate.algorithm, *inside


def _width(finding: Finding | None) -> float:
    """How well a time is known, as a share of it; not at all where it was not taken."""
    if finding is None or finding.measurement is None:
        return inf
    time_us = finding.measurement.device_us
    return (time_us.high - time_us.low) / max(time_us.value, 1e-3)
