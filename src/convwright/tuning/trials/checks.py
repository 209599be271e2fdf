"""Check results for errors within a budget, on several kinds of data."""

from __future__ import annotations

from dataclasses import dataclass

from convwright.core.candidate import Candidate
from convwright.core.error_rule import objection_to_errors
from convwright.core.finding import Finding, KindError
from convwright.core.policy import Policy
from convwright.measuring.checking.data import Kind, kinds_of
from convwright.measuring.checking.error import ErrorCheck
from convwright.measuring.checking.of_kind import reference_us, sampled_reference, whole_reference
from convwright.shortage import SHORTAGES, is_shortage
from convwright.tuning.budget import Budget
from convwright.tuning.trials.trial import Bench, Trial

# Ordered by what they reveal: wrong results in general, then how Fourier and Winograd transforms handle infinities and
# channels of different scale.
KINDS = (Kind.NORMAL, Kind.INFINITY, Kind.CHANNEL_SCALED, Kind.LARGE, Kind.POSITIVE, Kind.NAN)
# Fewer kinds are not enough for a candidate to be chosen.
FEWEST_KINDS = 2
# A float64 reference of the whole output must be ready within this share of the budget; otherwise some elements of the
# output must suffice.
_REFERENCE = 0.1


@dataclass(frozen=True, slots=True)
class Checked:
    """Measured errors, the text about what was checked, and whether the candidate is ruled out."""

    errors: tuple[KindError, ...]
    where: str
    wrong: bool

    @property
    def enough(self) -> bool:
        """Whether the checks suffice to choose the candidate."""
        return self.wrong or len(self.errors) >= FEWEST_KINDS


class Checks:
    """Checks candidates on shared operands and references, made once for each kind of data.

    Errors are compared with PyTorch's ``own`` call, or with its ``known`` errors.
    """

    def __init__(
        self, bench: Bench, policy: Policy, *, seed: int, own: Trial | None = None, known: Finding | None = None,
        whole_within_us: float = 0.0,
    ) -> None:  # fmt: skip
        self._bench, self._policy, self._seed, self._own = bench, policy, seed, own
        measured = None if known is None or own is not None else known.measurement
        self._base = None if measured is None else measured.errors
        kinds = KINDS if self._base is None else [kind for kind in KINDS if kind in {each.kind for each in self._base}]
        self._kinds = kinds_of(bench.problem, kinds)
        needed_us = reference_us(bench.problem, bench.device) * len(self._kinds)
        self._is_whole = needed_us <= _REFERENCE * whole_within_us
        self._check = self._made()
        self.of_own: Checked | None = None

    def _made(self) -> ErrorCheck:
        reference = whole_reference if self._is_whole else sampled_reference
        return ErrorCheck(
            self._bench.problem, self._bench.device, kinds=self._kinds, seed=self._seed, reference=reference
        )

    def fit(self, trial: Trial, budget: Budget, each_us: float) -> bool:
        """Whether there is time for the fewest kinds, if one takes ``each_us``."""
        owns = 1 if self._own is None or self.of_own is not None or trial is self._own else 2
        return owns * FEWEST_KINDS * each_us <= budget.left_us

    def check(self, trial: Trial, budget: Budget) -> Checked:
        """The errors of ``trial``. The fewest kinds may take all of the remaining budget, further ones half of it. A
        candidate found to be wrong is not checked further. Raises what running it raises."""
        if self._own is not None and self.of_own is None:
            errors = self._errors(self._own, budget, share=0.25)
            self.of_own, self._base = Checked(errors, self._where(errors), wrong=False), errors
        if trial is self._own:
            assert self.of_own is not None
            return self.of_own
        errors = self._errors(trial, budget, share=0.5)
        return Checked(errors, self._where(errors), wrong=self._is_wrong(trial.candidate, errors))

    def _errors(self, trial: Trial, budget: Budget, *, share: float) -> tuple[KindError, ...]:
        half_us, begun_us = share * budget.left_us, budget.now_us()
        of_base = None if self._base is None else len(self._base)

        def is_enough(found: tuple[KindError, ...]) -> bool:
            if len(found) < FEWEST_KINDS:
                return False
            spent_us = budget.now_us() - begun_us
            no_time = spent_us * (len(found) + 1) / len(found) > half_us
            return no_time or len(found) == of_base or self._is_wrong(trial.candidate, found)

        try:
            return self._check.errors(trial.run, is_enough)
        except SHORTAGES as error:
            if not self._is_whole or not is_shortage(error):
                raise
            self._is_whole = False  # a reference of the whole output takes most of the memory
            self._check = self._made()
            return self._check.errors(trial.run, is_enough)

    def _is_wrong(self, candidate: Candidate, errors: tuple[KindError, ...]) -> bool:
        if self._own is not None and candidate == self._own.candidate:
            return False
        return objection_to_errors(candidate, errors, self._base, self._policy) is not None

    def _where(self, errors: tuple[KindError, ...]) -> str:
        part = "the output" if self._is_whole else "some elements of the output"
        return f"{part}, on {', '.join(each.kind for each in errors)} data"
