"""Errors looked for within a budget: on some elements of the output, on one kind of data after the other."""

from __future__ import annotations

from dataclasses import dataclass

from convwright.core.candidate import Candidate
from convwright.core.error_rule import objection_to_errors
from convwright.core.finding import Finding, KindError
from convwright.core.policy import Policy
from convwright.measuring.checking.data import Kind, kinds_of
from convwright.measuring.checking.error import ErrorCheck
from convwright.measuring.checking.of_kind import sampled_reference
from convwright.tuning.budget import Budget
from convwright.tuning.trials.looks import FAILURES, failure
from convwright.tuning.trials.trial import Bench, Trial

# In the order in which they find faults: wrong results at all, then what Fourier and Winograd transforms make of an
# infinity, and of channels of different scale.
KINDS = (Kind.NORMAL, Kind.INFINITY, Kind.CHANNEL_SCALED, Kind.LARGE, Kind.POSITIVE, Kind.NAN)
# Fewer kinds say too little for a candidate to be chosen.
FEWEST_KINDS = 2


@dataclass(frozen=True, slots=True)
class Checked:
    """Errors by candidate on ``kinds``. ``failed`` are those that raised; ``wrong`` that the candidate is ruled out."""

    errors: dict[Candidate, tuple[KindError, ...]]
    failed: dict[Candidate, Finding]
    kinds: tuple[Kind, ...]
    wrong: bool = False

    @property
    def enough(self) -> bool:
        """True where the figures tell whether the candidate may be chosen."""
        return self.wrong or len(self.kinds) >= FEWEST_KINDS

    def __str__(self) -> str:
        return f"some elements of the output, on {', '.join(self.kinds)} data"


class SampledCheck:
    """Operands and references are made once for each kind, whoever is checked on them."""

    def __init__(self, bench: Bench, policy: Policy, *, seed: int) -> None:
        self._bench, self._policy, self._seed = bench, policy, seed
        self._of_kind: dict[Kind, ErrorCheck] = {}

    def check(self, trial: Trial, own: Trial | None, base: Finding | None, budget: Budget, each_us: float) -> Checked:
        """Errors of ``trial``, and of PyTorch's ``own`` call, or beside those that are known of it as ``base``.

        ``each_us`` is what one kind is thought to take. The fewest kinds may take all that is left, more of them half
        of it; a candidate that turns out to be wrong is looked at no further than those.
        """
        trials = [each for each in (own, trial) if each is not None]
        found: dict[Candidate, tuple[KindError, ...]] = {each.candidate: () for each in trials}
        kinds: tuple[Kind, ...] = ()
        half_us = budget.left_us / 2
        for kind in self._kinds(own, base):
            needed_us = each_us * max(FEWEST_KINDS - len(kinds), 1)
            if needed_us > budget.left_us - (half_us if len(kinds) >= FEWEST_KINDS else 0.0):
                break
            begun_us = budget.now_us()
            for each in trials:
                try:
                    found[each.candidate] += self._check(kind).errors(each.run)
                except FAILURES as error:
                    broken = failure(each.candidate, error, self._bench.device)
                    return Checked(found, {each.candidate: broken}, kinds)
            each_us, kinds = budget.now_us() - begun_us, (*kinds, kind)
            if len(kinds) >= FEWEST_KINDS and self._objection(trial, found, own, base) is not None:
                break
        return Checked(found, {}, kinds, wrong=self._objection(trial, found, own, base) is not None)

    def _kinds(self, own: Trial | None, base: Finding | None) -> tuple[Kind, ...]:
        """Where PyTorch's own call is known from before, what it was looked at for."""
        if own is None and base is not None and base.measurement is not None:
            known = {error.kind for error in base.measurement.errors}
            return tuple(kind for kind in KINDS if kind in known)
        return kinds_of(self._bench.problem, KINDS)

    def _check(self, kind: Kind) -> ErrorCheck:
        if kind not in self._of_kind:
            bench, seed = self._bench, self._seed
            self._of_kind[kind] = ErrorCheck(
                bench.problem, bench.device, kinds=[kind], seed=seed, reference=sampled_reference
            )
        return self._of_kind[kind]

    def _objection(
        self, trial: Trial, found: dict[Candidate, tuple[KindError, ...]], own: Trial | None, base: Finding | None
    ) -> str | None:
        known = None if base is None or base.measurement is None else base.measurement.errors
        beside = known if own is None else found[own.candidate]
        return objection_to_errors(trial.candidate, found[trial.candidate], beside, self._policy)
