"""Time a choice from the store again before using it."""

from __future__ import annotations

from collections.abc import Iterable

from convwright.core.candidate import Candidate
from convwright.core.finding import Finding
from convwright.shortage import is_shortage
from convwright.tuning.budget import Budget
from convwright.tuning.choose import call_us
from convwright.tuning.findings import Findings
from convwright.tuning.trials.quick_timing import FAILURES
from convwright.tuning.trials.search_input import SEED
from convwright.tuning.trials.side_by_side import Stopwatch
from convwright.tuning.trials.trial import Bench, Trial

_TOLERANCE = 0.1
_SHARE = 0.25
_MOST_US = 200_000.0


def still_holds(found: Findings, budget: Budget) -> bool:
    """Whether the winner still takes, beside PyTorch's own call, the stored time within a tenth.

    The ratio of the two times counts, since a lower clock, for example, slows both. If PyTorch's own call is the
    winner, its time alone counts. A disturbed measurement, or lack of memory, is no evidence against the choice: a new
    search could find no more.
    """
    winner, own = found.choice, found.baseline
    if winner is None or winner.measurement is None:
        return False
    pair = [winner] if own is None or own.measurement is None or own is winner else [winner, own]
    try:
        fresh = timed_again((finding.candidate for finding in pair), found, min(budget.left_us * _SHARE, _MOST_US))
    except FAILURES as error:
        return is_shortage(error)
    again = [fresh[finding.candidate] for finding in pair if finding.candidate in fresh]
    if len(again) < len(pair) or any(finding.measurement is None for finding in again):
        return False
    if any(finding.unstable for finding in again):
        return True
    now, then = _figure(again, found), _figure(pair, found)
    return abs(now / then - 1) <= _TOLERANCE


def timed_again(candidates: Iterable[Candidate], found: Findings, budget_us: float) -> dict[Candidate, Finding]:
    """A short comparison of the candidates."""
    bench = Bench(found.problem, found.device, found.mode, seed=SEED)
    return Stopwatch(bench).heat([Trial(candidate, bench) for candidate in candidates], budget_us)


def _figure(pair: list[Finding], found: Findings) -> float:
    """The winner's time as a share of the other's, or its time if there is no other."""
    times = [call_us(finding, found.policy).value for finding in pair]
    return times[0] / times[1] if len(times) > 1 else times[0]
