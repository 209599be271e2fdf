"""Who wins is timed again on fresh inputs, and has to win again."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import torch

from convwright.core.candidate import Candidate
from convwright.core.finding import Finding
from convwright.core.policy import Objective
from convwright.shortage import is_shortage
from convwright.tuning.choose import choose, cost, surely_less
from convwright.tuning.trials.contest import SEED, Contest
from convwright.tuning.trials.doubt import unstable
from convwright.tuning.trials.heats import Stopwatch
from convwright.tuning.trials.looks import FAILURES, failure
from convwright.tuning.trials.trial import Trial

_FRESH_SEED = SEED + 1
_MOST = 3
_NOT_AGAIN = f"AMBIGUOUS: it was not timed again, since {_MOST} that seemed better did not win twice"
# Workspace does not change with the inputs, and energy takes too long to be measured twice.
_TIMES = (Objective.TIME, Objective.DEVICE_TIME, Objective.TIME_THEN_WORKSPACE)


def confirmed(timed: Mapping[Candidate, Finding], contest: Contest) -> dict[Candidate, Finding]:
    """Those findings of ``timed`` that change: winners that were confirmed, and those that turned out to be doubtful.

    Where a winner falls its successor has to win twice as well, or PyTorch's own call is what is left.
    """
    changed: dict[Candidate, Finding] = {}
    base = timed.get(contest.baseline) if contest.baseline is not None else None
    if base is None or base.measurement is None or contest.policy.objective not in _TIMES:
        return {}

    def unconfirmed() -> Finding | None:
        """Who would win and has won once only."""
        rows = [changed.get(candidate, finding) for candidate, finding in timed.items()]
        first = choose(rows, base, contest.policy)[0]
        return first.finding if first.won and first.finding.candidate not in {contest.baseline, *changed} else None

    for left in range(_MOST, 0, -1):
        if (first := unconfirmed()) is None:
            return changed
        contest.hooks.progress("confirmation", _MOST - left, _MOST)
        changed[first.candidate] = _again(first, base, contest, contest.budget.left_us / left)
    while (first := unconfirmed()) is not None:
        changed[first.candidate] = _doubtful(first, _NOT_AGAIN)
    return changed


def _again(finding: Finding, base: Finding, contest: Contest, budget_us: float) -> Finding:
    """The finding, confirmed or doubtful."""
    assert finding.measurement is not None
    try:
        bench = contest.bench(_FRESH_SEED)
        trials = [Trial(each.candidate, bench) for each in (finding, base)]
        timed = Stopwatch(bench).heat(trials, budget_us)
    except FAILURES as error:
        if is_shortage(error):
            return _doubtful(finding, unstable("it won at first, and memory was too short to time it again", ()))
        return failure(finding.candidate, error, torch.device(str(contest.device.torch_name)))
    fresh, own = timed.get(finding.candidate), timed.get(base.candidate)
    if fresh is not None and fresh.failure is not None:
        return fresh
    if fresh is None or own is None or fresh.measurement is None or own.measurement is None:
        return _doubtful(finding, unstable("it won at first, and with fresh inputs its time drowned in noise", ()))
    # Beside other work, or in few rounds, intervals are wide. Where they are apart all the same, so are the times.
    if surely_less(cost(fresh, contest.policy), cost(own, contest.policy)):
        facts = (*finding.measurement.conditions, ("confirmed", "timed again with fresh inputs"))
        return replace(finding, measurement=replace(finding.measurement, conditions=facts))
    disturbed = fresh.unstable or own.unstable
    if disturbed is not None:
        return _doubtful(finding, disturbed)
    ratios = [cost(a, contest.policy).value / cost(b, contest.policy).value for a, b in ((finding, base), (fresh, own))]
    doubt = (
        f"AMBIGUOUS: {ratios[0]:.2f}x the time of PyTorch's own call at first, and with fresh inputs {ratios[1]:.2f}x, "
        "which is not surely less by more than a tie"
    )
    return _doubtful(finding, doubt)


def _doubtful(finding: Finding, doubt: str) -> Finding:
    assert finding.measurement is not None
    return replace(finding, measurement=replace(finding.measurement, doubt=doubt))
