"""Subjects: what is to be known of each call, and of how many calls the samples are that tell it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from math import ceil

from convwright.measuring.call import After, Call, rotating
from convwright.measuring.clock import Clock
from convwright.measuring.regression import fit_line

FEWEST_ROUNDS = 2
FIRST_LOOK = 10
# The outer two of three sizes fix the slope, the middle one shows whether time is linear in n at all. Wider apart
# the slope would be no better for the time spent: noise grows with the length of a sample. Samples of one size have
# what reading the clock takes in them: they are for calls beside which that is nothing, at least so many times as long
# as a sample has to be.
_SIZES = (1, 3, 4)
_SHORT_SIZES, _SHORTEST = (1, 2), (1,)
_VERY_LONG = 10.0
_MOST_CALLS = 1 << 16
# A first look is taken again where that costs no more than a tenth of a call's part of the budget.
_AGAIN_SHARE = 20


@dataclass(slots=True)
class Series:
    """One callable under measurement: how many calls its samples have, what they took, and the slope of each round."""

    call: Callable[[], object]
    sizes: tuple[int, ...]
    times_us: list[tuple[float, ...]] = field(default_factory=list)
    slopes_us: list[float] = field(default_factory=list)

    def add(self, times_us: tuple[float, ...]) -> None:
        self.times_us.append(times_us)
        alone = times_us[0] / self.sizes[0]
        self.slopes_us.append(fit_line(self.sizes, times_us).slope.value if len(times_us) > 1 else alone)


@dataclass(frozen=True, slots=True)
class Subject:
    """What is to be known: one call of ``series``, less one of ``before`` where that runs before each and is counted.

    The difference is taken round by round, so that what slows both cancels, and so that its spread is seen.
    """

    series: Series
    before: Series | None = None

    def slopes_us(self, rounds: Sequence[int]) -> list[float]:
        own = self.series.slopes_us
        if self.before is None:
            return [own[index] for index in rounds]
        return [own[index] - self.before.slopes_us[index] for index in rounds]


def subjects_of(
    calls: Mapping[str, Call],
    before: Mapping[str, Callable[[], object]],
    clock: Clock,
    *,
    budget_us: float,
    end_us: float,
) -> dict[str, Subject]:
    """The calls, each with what its samples hold. What runs before several calls is one series that they share."""
    counted = {} if clock.leaves_out_before else {id(first): first for first in before.values()}
    each_us = budget_us / max(len(counted) + len(calls), 1)
    firsts = {key: _look(first, clock, 1, each_us) for key, first in counted.items()}
    looks = {name: _first_look(call, before.get(name), clock, each_us) for name, call in calls.items()}
    _spread([*firsts.values(), *looks.values()], end_us - clock.now_us())
    shared = {key: Series(look.call, look.sizes) for key, look in firsts.items()}
    return {
        name: Subject(Series(look.call, look.sizes), shared.get(id(before[name])) if name in before else None)
        for name, look in looks.items()
    }


@dataclass(slots=True)
class _Snapshot:
    """A call at first sight: its smallest sample, and what taking that sample took. A call that is a sample by itself
    is ``long``, so many times as long as a sample has to be."""

    call: Callable[[], object]
    n: int
    spent_us: float
    sizes: tuple[int, ...] = ()
    long: float = 0.0


def _first_look(call: Call, before: Callable[[], object] | None, clock: Clock, each_us: float) -> _Snapshot:
    once, turns = rotating(call), 1 if callable(call) else len(call)
    if before is None:
        return _look(once, clock, turns, each_us)
    once = After(before, once)
    if not clock.leaves_out_before:
        return _look(once, clock, turns, each_us)
    # Where each call is timed by itself, samples of one have no overhead that a regression would take out.
    clock.time_us(once, 1)
    return _Snapshot(once, 1, 0.0, sizes=(1,))


def _look(call: Callable[[], object], clock: Clock, turns: int, each_us: float) -> _Snapshot:
    """The smallest number of calls that is long enough for the clock.

    It is a multiple of ``turns``, the number of inputs that take turns: each sample then begins with the same input,
    which was in use as long ago as any other.
    """
    clock.time_us(call, turns)  # The first call loads, compiles and allocates.
    time_us, spent_us = _sample_us(call, clock, turns)
    cycles, most = 1, max(_MOST_CALLS // turns, 1)
    while True:
        if time_us >= 0.8 * clock.sample_us and spent_us * _AGAIN_SHARE <= each_us:
            # Long perhaps only since something came between: that seldom happens three times in a row.
            again = [_sample_us(call, clock, cycles * turns) for _ in range(2)]
            time_us, spent_us = min([(time_us, spent_us), *again])
        if time_us >= 0.8 * clock.sample_us or cycles == most:
            return _Snapshot(call, cycles * turns, spent_us, long=time_us / clock.sample_us if cycles == 1 else 0.0)
        wanted = ceil(cycles * clock.sample_us / max(time_us, clock.sample_us / 16))
        cycles = min(_rounded(max(wanted, cycles + 1)), most)
        time_us, spent_us = _sample_us(call, clock, cycles * turns)


def _rounded(count: int) -> int:
    """Up to the next that has only three leading bits: where a call is met again, and its time seen a little different,
    its samples are those for which a clock has captured graphs.

    >>> [_rounded(count) for count in (1, 7, 9, 22, 25, 28, 29)]
    [1, 7, 10, 24, 28, 28, 32]
    """
    step = 1 << max(count.bit_length() - 3, 0)
    return ceil(count / step) * step


def _sample_us(call: Callable[[], object], clock: Clock, n: int) -> tuple[float, float]:
    """The time of a sample, and the time that taking it took."""
    begun_us = clock.now_us()
    return clock.time_us(call, n), clock.now_us() - begun_us


def _spread(looks: Sequence[_Snapshot], left_us: float) -> None:
    """Give each call the sizes of its samples.

    Long calls get samples of fewer calls where the budget is short, all of them or none: other work on the machine
    falls into long samples more often than into short ones, and equal calls must be equally exposed to it.
    """
    spent_us = sum(look.spent_us for look in looks)
    fits = spent_us * sum(_SIZES) * FIRST_LOOK <= left_us
    shorter = spent_us * sum(_SHORT_SIZES) * FEWEST_ROUNDS > left_us
    for look in looks:
        short = _SHORTEST if shorter and look.long >= _VERY_LONG else _SHORT_SIZES
        sizes = _SIZES if fits or not look.long else short
        look.sizes = look.sizes or tuple(look.n * size for size in sizes)
