"""The candidates of a search that are worth trying inside a network: the winner and the close ones."""

from __future__ import annotations

import torch

from convwright.core.candidate import Candidate
from convwright.core.error_rule import objection_to_errors
from convwright.core.finding import Finding, Interval, KindError
from convwright.settings import Mode
from convwright.shortage import SHORTAGES
from convwright.store.store import Store
from convwright.tuning import listing
from convwright.tuning.budget import Budget
from convwright.tuning.choose import call_us
from convwright.tuning.findings import Findings
from convwright.tuning.recall import Recall
from convwright.tuning.trials.checks import Checks
from convwright.tuning.trials.quick_timing import FAILURES
from convwright.tuning.trials.search_input import SEED
from convwright.tuning.trials.side_by_side import with_errors
from convwright.tuning.trials.trial import Bench, Trial

# At most _MOST besides the winner, each at most _CLOSE times as long. Inside a network caches are cold and each call
# costs, so another candidate may be the fastest.
_MOST, _CLOSE = 2, 1.6
_CHECKING_US = 1e6


def alternates(found: Findings, store: Store, *, frugal: bool = False) -> tuple[tuple[Candidate, Interval], ...]:
    """The winner and close candidates with acceptable errors, with their times. ``frugal`` adds the one with the least
    workspace, and the fastest of several if these need more. Errors that are measured for this go to ``store``."""
    choice = found.choice
    if choice is None:
        return ()
    if found.mode is Mode.PREDICT:
        return _predicted(found)
    best = call_us(choice, found.policy)
    others = [
        verdict.finding for verdict in found.verdicts
        if verdict.finding is not choice and verdict.finding.measurement is not None
        and listing.objection(verdict.finding.candidate, found.policy) is None
    ]  # fmt: skip
    others.sort(key=lambda finding: call_us(finding, found.policy).value)
    close = [finding for finding in others if call_us(finding, found.policy).value <= _CLOSE * best.value]
    checking, right = _Checking(found), list[Finding]()
    for finding in close[: 2 * _MOST]:
        if len(right) < _MOST and checking.is_right(finding):
            right.append(finding)
    if frugal:
        fewest = min(map(_workspace_bytes, (choice, *right)))
        small = sorted((each for each in others if _workspace_bytes(each) < fewest), key=_workspace_bytes)
        right += [finding for finding in small[: 2 * _MOST] if checking.is_right(finding)][:1]
    Recall(found.problem, found.device, found.policy, store, "direct").record_errors(checking.checked)
    return tuple((each.candidate, call_us(each, found.policy)) for each in (choice, *right))


def _predicted(found: Findings) -> tuple[tuple[Candidate, Interval], ...]:
    """The winner by prediction, and candidates predicted to be close. Nothing runs, so nothing is checked."""
    times = [
        (verdict.finding.candidate, known.prediction.time_us)
        for verdict in found.verdicts
        if verdict.allowed and (known := (found.predictions or {}).get(verdict.finding.candidate.id)) is not None
        and known.prediction is not None
    ]  # fmt: skip
    return tuple(each for each in times[: 1 + _MOST] if each[1].value <= _CLOSE * times[0][1].value)


def _workspace_bytes(finding: Finding) -> int:
    assert finding.measurement is not None
    return finding.measurement.workspace_bytes


class _Checking:
    """Checks errors, and measures them if the search did not."""

    def __init__(self, found: Findings) -> None:
        self._found = found
        self._ready: tuple[Bench, Checks] | None = None
        self.checked: list[Finding] = []

    def is_right(self, finding: Finding) -> bool:
        assert finding.measurement is not None
        if finding.measurement.errors:
            # A doubtful time is no reason against it: it is timed again in the network.
            errors = finding.measurement.errors
            return objection_to_errors(finding.candidate, errors, self._errors_of_own, self._found.policy) is None
        try:
            bench, checks = self._ready = self._ready or self._made()
            with torch.autocast(bench.device.type, enabled=False):
                checked = checks.check(Trial(finding.candidate, bench), Budget(_CHECKING_US))
        except (*SHORTAGES, *FAILURES):
            return False
        if not self.checked and self._found.baseline is not None and checks.of_own is not None:
            self.checked.append(with_errors(self._found.baseline, checks.of_own.errors, checks.of_own.where))
        if checked.enough:
            self.checked.append(with_errors(finding, checked.errors, checked.where))
        return checked.enough and not checked.wrong

    @property
    def _errors_of_own(self) -> tuple[KindError, ...] | None:
        """The errors of PyTorch's own call, as far as they were measured."""
        own = self._found.baseline
        return None if own is None or own.measurement is None else own.measurement.errors

    def _made(self) -> tuple[Bench, Checks]:
        found = self._found
        bench = Bench(found.problem, found.device, found.mode, seed=SEED)
        if self._errors_of_own:
            return bench, Checks(bench, found.policy, seed=SEED, known=found.baseline)
        own = None if found.baseline is None else Trial(found.baseline.candidate, bench)
        return bench, Checks(bench, found.policy, seed=SEED, own=own)
