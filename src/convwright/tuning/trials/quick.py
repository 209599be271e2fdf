"""Mode quick: as much as can be found out within a budget that is kept.

First looks, a heat of the few that look fastest, a check of what computes right, and a final between the best of them
and PyTorch's own call.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import nullcontext
from dataclasses import replace

from convwright.core.candidate import Candidate
from convwright.core.finding import Finding
from convwright.core.policy import Objective
from convwright.measuring.clock import no_garbage_collection
from convwright.measuring.compare import TIE
from convwright.shortage import SHORTAGES
from convwright.tuning import listing
from convwright.tuning.choose import cost, is_torch, objection, surely_better
from convwright.tuning.prediction import hopeless_us, least_us, own_call_us
from convwright.tuning.trials.checks import Checked, SampledCheck
from convwright.tuning.trials.contest import SEED, SPENT, Contest, passed_over
from convwright.tuning.trials.heats import Stopwatch, heat_us, like, with_errors
from convwright.tuning.trials.linking import reason_not_to_link
from convwright.tuning.trials.looks import Look, Looks, none_had

# First looks may begin within this share of the budget. A compilation, which takes longer than the whole of it where
# no cache has the kernel, is begun only while so much is left, and comes after all that is quicker to build.
_LOOKING = 0.4
_COMPILING = 0.5
# So much is left for the heat and what follows, however long the last look took: more where calls are long.
_LEAST_LEFT, _MOST_LEFT = 0.25, 1 - _LOOKING
# What a library links at a first run may take this share of the budget.
_LITTLE = 0.1
# So many calls of each the shortest heat takes, which on a GPU captures them.
_HEAT_CALLS = {"cpu": 4, "cuda": 8}
# So many calls a decision takes: the shortest heat that of two, and the least check of both 4.
_DECIDING = {kind: 2 * calls + 4 for kind, calls in _HEAT_CALLS.items()}
# Where fewer calls of PyTorch's own fit into what is left, no other look is begun, which takes 2.
_FEWEST_CALLS = {kind: 2 + calls for kind, calls in _DECIDING.items()}
# Half of its limit is what a compiled kernel may reach; one that would not win even so is not worth compiling.
_REACHABLE = 0.5
# So many beside PyTorch's own call, and this share of what is left, go into the heat. What seemed to take so many times
# as long as that call is not among them.
_IN_HEAT = 3
_HEAT = 0.35
_SLOW = 2.0
# So much of the whole is for what follows a final, writing down what was found; a final that has no more than so much
# would tell nothing that the heat did not.
_CLOSING, _FINAL = 0.07, 0.03
# Python looks for garbage in searches that are longer than this.
_COLLECTING_US = 1e6
TOO_LONG = "was not tried: PyTorch's own call takes"
# What seemed to take at most so many times as long as PyTorch's own call may still turn out to be better.
_NEAR = 1.1


def quick(candidates: Iterable[Candidate], contest: Contest) -> list[Finding]:
    """Findings of the candidates that were taken, in their order. PyTorch's own call comes first."""
    own_us = 0.0 if contest.baseline is None else own_call_us(contest.baseline, contest.device)
    if own_us * _FEWEST_CALLS[contest.device.kind] > contest.budget.total_us:
        why = _too_long(f"at least {own_us / 1e3:.3g}", contest)
        return [
            Finding(each, note=why, too_long_us=own_us if each == contest.baseline else None) for each in candidates
        ]
    with no_garbage_collection() if contest.budget.total_us < _COLLECTING_US else nullcontext():
        try:
            search = _Quick(contest)
        except SHORTAGES as error:
            return none_had(candidates, error)
        order = search.look(candidates)
        contest.budget.leave(search.least_left)
        timed = search.finals()
        return [search.told(timed.get(candidate) or search.untimed(candidate)) for candidate in order]


class _Quick:
    def __init__(self, contest: Contest) -> None:
        self.contest, self.budget = contest, contest.budget
        begun_us = self.budget.now_us()
        self.bench = contest.bench()
        self.making_us = self.budget.now_us() - begun_us
        self.on = contest.device.kind
        patience_us = self.budget.total_us / _FEWEST_CALLS[self.on]
        self.looks = Looks(self.bench, self.budget, contest.policy, contest.hooks.trying, patience_us=patience_us)
        self.passed: dict[Candidate, str] = {}

    def look(self, candidates: Iterable[Candidate]) -> list[Candidate]:
        """Look at candidates for as long as there is time; all that were taken, in their order."""
        order = []
        for candidate in candidates:
            order.append(candidate)
            reason = None if candidate == self.contest.baseline else self._reason_to_pass(candidate)
            if reason is not None:
                self.passed[candidate] = reason
                continue
            look = self.looks.at(candidate)
            if look is not None:
                self.contest.hooks.looked(candidate, self.looks.cost_us(candidate))
            self.contest.hooks.progress("first looks", len(self.looks.looked), len(order))
        return order

    def _reason_to_pass(self, candidate: Candidate) -> str | None:
        later, forbidden = self.contest.hooks.later, listing.objection(candidate, self.contest.policy)
        if forbidden is not None:
            return f"was not tried: {forbidden}"
        if is_torch(candidate):
            return "was not tried: it is PyTorch with its TF32 flag the other way round"
        unlinked = reason_not_to_link(candidate, self.budget, _LITTLE)
        if unlinked is not None:
            return unlinked
        if candidate.compiles and later is not None:
            return self._reason_not_to_compile(candidate) or later(candidate) or self._reason_to_stop(1 - _LOOKING)
        reason = self._reason_to_stop(_COMPILING if candidate.compiles else 1 - _LOOKING)
        return reason or self._reason_not_to_compile(candidate) or self._reason_not_to_look(candidate)

    def _reason_to_stop(self, least_left: float) -> str | None:
        """Where less than a share of the budget is left, or too little for a heat."""
        call_us = self._call_us()
        if call_us is not None and call_us * _FEWEST_CALLS[self.on] > self.budget.left_us:
            if self.looks.looked.keys() - {self.contest.baseline}:
                return SPENT
            if self._is_disturbed():
                return f"was not tried: PyTorch's own call took {call_us / 1e3:.3g} ms, and other work disturbed it"
            is_long = (2 + _FEWEST_CALLS[self.on]) * call_us > self.budget.total_us  # with its own look
            return _too_long(f"{call_us / 1e3:.3g}", self.contest) if is_long else SPENT
        return None if self.budget.has(least_left) else SPENT

    def _reason_not_to_compile(self, candidate: Candidate) -> str | None:
        least = least_us(candidate, self.contest.device) if candidate.compiles else None
        if least is not None and self.looks.looked and least / _REACHABLE > self.looks.best_us:
            return f"was not compiled: it needs {least:.3g} µs at the least, {self.looks.best_us:.3g} µs were seen"
        return None

    def _reason_not_to_look(self, candidate: Candidate) -> str | None:
        """Libraries load what they launch, which may take most of the budget: what cannot win is not worth it."""
        if candidate.compiles:
            return None
        least = hopeless_us(candidate, self.contest.device, self.looks.best_us)
        if least is None:
            return None
        return f"was not tried: it needs {least:.3g} µs to move its data, {self.looks.best_us:.3g} µs were seen"

    def _call_us(self) -> float | None:
        """What PyTorch's own call takes, as far as that is known."""
        baseline = self.contest.baseline
        if baseline in self.looks.looked:
            return self.looks.looked[baseline].call_us
        known = self.contest.known_baseline()
        return known.measurement.device_us.value if known is not None and known.measurement is not None else None

    def _is_disturbed(self) -> bool:
        """Whether other work disturbed every look at PyTorch's own call."""
        look = self.looks.looked.get(self.contest.baseline) if self.contest.baseline is not None else None
        return look is not None and look.disturbed

    @property
    def least_left(self) -> float:
        """The share of the budget that a decision takes."""
        needed_us = _DECIDING[self.on] * (self._call_us() or 0.0)
        return min(max(needed_us / self.budget.total_us, _LEAST_LEFT), _MOST_LEFT)

    def finals(self) -> dict[Candidate, Finding]:
        """The heat, checks of those that won it until one is right, and the final of that one."""
        looks, policy, baseline = self._contenders(), self.contest.policy, self.contest.baseline
        if not looks or not self._fits(looks.values(), 4):
            return {}
        stopwatch, check = Stopwatch(self.bench), SampledCheck(self.bench, policy, seed=SEED)
        self.contest.hooks.progress("heat", 0, 1)
        begun_us, heat_us = self.budget.now_us(), self.budget.left_us * _HEAT
        timed = stopwatch.heat([look.trial for look in looks.values()], heat_us)
        reckoned_us = max(heat_us, sum(map(self._heat_us, looks.values())))
        slowness = max((self.budget.now_us() - begun_us) / reckoned_us, 1.0)
        if baseline in looks and baseline not in timed:
            return {}  # there is nothing to hold the others against
        base = self._base(timed)
        for candidate in self._promising(timed, base):
            both = [looks[each] for each in (baseline, candidate) if each is not None and each in looks]
            self.contest.hooks.progress("check", 0, 1)
            own = looks[baseline].trial if baseline in looks else None
            each_us = self.making_us + sum(look.call_us for look in both)
            checked = check.check(looks[candidate].trial, own, base, self.budget, each_us)
            timed |= _with_checked(timed, candidate, checked)
            base = self._base(timed)
            if objection(timed[candidate], base, policy) is None:
                return timed | {
                    each: like(finding, timed[each]) for each, finding in self._final(stopwatch, both, slowness)
                }
        return timed

    def _final(
        self, stopwatch: Stopwatch, looks: Sequence[Look], slowness: float
    ) -> Iterable[tuple[Candidate, Finding]]:
        """These timed again, where there is time, on a host that takes so many times as long as is reckoned."""
        final_us = self.budget.left_us - _CLOSING * self.budget.total_us
        if final_us < max(_FINAL * self.budget.total_us, slowness * sum(map(self._heat_us, looks))):
            return ()
        self.contest.hooks.progress("final", 0, 1)
        return stopwatch.heat([look.trial for look in looks], final_us).items()

    def _base(self, timed: dict[Candidate, Finding]) -> Finding | None:
        own = timed.get(self.contest.baseline) if self.contest.baseline is not None else None
        return own or self.contest.known_baseline()

    def _contenders(self) -> dict[Candidate, Look]:
        """PyTorch's own call, and of those that look best as many as a heat has time for."""
        looked, baseline = self.looks.looked, self.contest.baseline
        chosen = {baseline: looked[baseline]} if baseline is not None and baseline in looked else {}
        ranked = sorted((c for c in looked if self._may_win(c)), key=lambda candidate: self._promise(looked[candidate]))
        for candidate in ranked[:_IN_HEAT]:
            more = {**chosen, candidate: looked[candidate]}
            share = 1.0 if len(more) <= 2 else _HEAT
            if sum(map(self._heat_us, more.values())) <= share * self.budget.left_us:
                chosen = more
        return chosen

    def _may_win(self, candidate: Candidate) -> bool:
        """Whether it is worth timing beside PyTorch's own call."""
        looked, baseline, policy = self.looks.looked, self.contest.baseline, self.contest.policy
        if candidate == baseline:
            return False
        if baseline not in looked or looked[candidate].cold or policy.objective is Objective.WORKSPACE:
            return True
        return not self._is_own_allowed or self.looks.cost_us(candidate) < _SLOW * self.looks.cost_us(baseline)

    @property
    def _is_own_allowed(self) -> bool:
        """Whether PyTorch's own call may be chosen, so that others have to be better."""
        own = self.contest.baseline
        return own is not None and listing.objection(own, self.contest.policy) is None

    def _promise(self, look: Look) -> tuple[float, ...]:
        """What is least of the best, as far as a look tells."""
        by_workspace = self.contest.policy.objective is Objective.WORKSPACE
        cost_us = look.cost_us(self.contest.policy)
        return (look.trial.plan.workspace_bytes, cost_us) if by_workspace else (cost_us,)

    def _heat_us(self, look: Look) -> float:
        """What the shortest heat takes of a candidate."""
        calls = _HEAT_CALLS[self.on]
        return calls * look.call_us if self.on == "cpu" else heat_us(look, calls)

    def _fits(self, looks: Iterable[Look], calls: float) -> bool:
        """Whether so many calls of each fit into what is left."""
        return calls * sum(look.call_us for look in looks) <= self.budget.left_us

    def _promising(self, timed: dict[Candidate, Finding], base: Finding | None) -> list[Candidate]:
        """Those that may be better than PyTorch's own call as far as the heat tells: those that surely are before the
        others, the best first."""
        policy = self.contest.policy
        ranked = [c for c, finding in timed.items() if c != self.contest.baseline and finding.measurement is not None]
        ranked.sort(key=lambda candidate: cost(timed[candidate], policy).value)
        if base is None or base.measurement is None or not self._is_own_allowed:
            return ranked
        least = cost(base, policy)
        near = [candidate for candidate in ranked if cost(timed[candidate], policy).value < _NEAR * least.value]
        near = [candidate for candidate in near if cost(timed[candidate], policy).low < (1 - TIE) * least.high]
        return sorted(near, key=lambda candidate: not surely_better(timed[candidate], base, policy))

    def told(self, finding: Finding) -> Finding:
        """The finding, with what PyTorch's own call takes where that left no time to look at anything else."""
        own, looked = self.contest.baseline, self.looks.looked
        if own is None or finding.candidate != own or looked.keys() != {own} or self._is_disturbed():
            return finding
        was_stopped = any(reason.startswith((SPENT, TOO_LONG)) for reason in self.passed.values())
        return replace(finding, too_long_us=looked[own].call_us) if was_stopped else finding

    def untimed(self, candidate: Candidate) -> Finding:
        """What is said of a candidate that was not timed."""
        if candidate in self.looks.failed:
            return self.looks.failed[candidate]
        if candidate not in self.looks.looked:
            return passed_over(candidate, self.passed.get(candidate, SPENT))
        if candidate == self.contest.baseline and not self._is_disturbed():
            took_ms = self.looks.looked[candidate].call_us / 1e3
            return Finding(candidate, note=f"was not timed: a call takes about {took_ms:.3g} ms, the budget was spent")
        if self.contest.policy.objective is Objective.WORKSPACE:
            nbytes = self.looks.looked[candidate].trial.plan.workspace_bytes
            return Finding(candidate, note=f"was not timed: it needs {nbytes:,} bytes of workspace, and others no more")
        return self.looks.passed_over(candidate)


def _too_long(call_ms: str, contest: Contest) -> str:
    """Why nothing is tried where PyTorch's own call takes so long."""
    within_ms = contest.budget.total_us / 1e3
    return f"{TOO_LONG} {call_ms} ms, too long to compare it with anything within {within_ms:.3g} ms"


def _with_checked(timed: dict[Candidate, Finding], candidate: Candidate, checked: Checked) -> dict[Candidate, Finding]:
    """The findings of those that were checked, with what came of it."""
    found = dict(checked.failed)
    for each, errors in checked.errors.items():
        if each in found:
            continue
        if checked.enough:
            found[each] = with_errors(timed[each], errors, str(checked))
        elif each == candidate:
            found[each] = replace(timed[each], note="was timed, but there was no time to look at its error")
    return found
