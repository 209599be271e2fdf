"""A choice timed anew beside PyTorch's calls, in one run of the timer, and what many such rows come to."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Container, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from convwright.core.finding import Interval
from convwright.measuring.compare import Outcome, Verdict, compare
from convwright.measuring.timing import Timing
from convwright.report.benchmarks.table import geometric_mean

OURS = "ours"
_MOST_ATTEMPTS = 3


@dataclass(frozen=True, slots=True)
class Attempt:
    """One run of the timer: our call beside others, of which ``best`` is the fastest that is not wrong."""

    timings: Mapping[str, Timing]
    verdicts: Mapping[str, Verdict]
    best: str

    @classmethod
    def of(cls, timings: Mapping[str, Timing], wrong: Container[str]) -> Attempt:
        others = [name for name in timings if name != OURS]
        verdicts = {name: compare(timings[OURS], timings[name]) for name in others}
        right = [name for name in others if name not in wrong] or others
        best = min(right, key=lambda name: timings[name].call_us.value)
        return cls(timings, verdicts, best)

    @property
    def verdict(self) -> Verdict:
        """What our call is beside the fastest other."""
        return self.verdicts[self.best]


def attempts(take: Callable[[], Mapping[str, Timing]], *, narrow: float, wrong: Container[str] = ()) -> list[Attempt]:
    """Runs of the timer, again as long as the ratio is known to no more than ± ``narrow``, three at most.

    That other work on the machine disturbed a run is no result of it.
    """
    taken = [Attempt.of(take(), wrong)]
    while taken[-1].verdict.ratio.relative_halfwidth > narrow and len(taken) < _MOST_ATTEMPTS:
        taken.append(Attempt.of(take(), wrong))
    return taken


def narrowest(taken: Iterable[Attempt]) -> Attempt:
    """The one that counts, whatever it says."""
    return min(taken, key=lambda attempt: attempt.verdict.ratio.relative_halfwidth)


def interval(data: Mapping[str, Any]) -> Interval:
    """An interval read back; what is not finite is a word in strict JSON."""
    return Interval(*(float(data[end]) for end in ("value", "low", "high")))


def faster(ratio: Mapping[str, Any]) -> Interval:
    """How many times as fast, where ``ratio`` is our time divided by another."""
    read = interval(ratio)
    return Interval(1 / read.value, 1 / read.high, 1 / read.low if read.low > 0 else float("inf"))


def counted(lines: Iterable[Mapping[str, Any]]) -> str:
    """How many rows came out how."""
    counts = Counter(line["outcome"] for line in lines)
    return ", ".join(f"{counts[outcome]} {outcome.upper()}" for outcome in _ORDER)


_ORDER = (Outcome.SAME, Outcome.FAST, Outcome.SLOW, Outcome.AMBIGUOUS)


def mean_in_words(ratios: Iterable[Mapping[str, Any]]) -> str | None:
    """The geometric mean of how many times as fast; None of none."""
    mean = geometric_mean([faster(ratio) for ratio in ratios])
    return None if mean is None else f"{mean.value:.3f} times as fast [{mean.low:.3f}, {mean.high:.3f}]"
