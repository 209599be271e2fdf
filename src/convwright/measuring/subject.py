"""Subjects: the calls to be timed, and the numbers of calls in their samples."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from math import ceil

from convwright.measuring.call import After, Call, rotating
from convwright.measuring.clock import Clock
from convwright.measuring.regression import fit_line

FEWEST_ROUNDS = 2
FIRST_LOOK = 10
# The outer two of three sizes determine the slope; the middle one shows whether time is linear in n. Larger distances
# would not improve the slope in the same time, since noise grows with the length of a sample. Samples of one size
# include the cost of reading the clock; they are for calls that are at least this many times as long as a sample must
# be.
_SIZES = (1, 3, 4)
_SHORT_SIZES, _SHORTEST = (1, 2), (1,)
_VERY_LONG = 10.0
_MOST_CALLS = 1 << 16
# A first timing is repeated if that costs at most a tenth of a call's part of the budget.
_AGAIN_SHARE = 20


@dataclass(slots=True)
class Series:
    """One callable: the sizes of its samples, their times, and the slope of each round."""

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
    """The time to find: one call of ``series``, minus one of ``before`` if that runs before each and is included.

    The difference is computed round by round, so that common slowdowns cancel and its spread is visible.
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
    fewest_rounds: int = FEWEST_ROUNDS,
) -> dict[str, Subject]:
    """The calls with their sample sizes. Work that runs before several calls is one shared series."""
    counted = {} if clock.leaves_out_before else {id(first): first for first in before.values()}
    each_us = budget_us / max(len(counted) + len(calls), 1)
    firsts = {key: _look(first, clock, 1, each_us) for key, first in counted.items()}
    looks = {name: _first_look(call, before.get(name), clock, each_us) for name, call in calls.items()}
    _spread([*firsts.values(), *looks.values()], end_us - clock.now_us(), fewest_rounds)
    shared = {key: Series(look.call, look.sizes) for key, look in firsts.items()}
    return {
        name: Subject(Series(look.call, look.sizes), shared.get(id(before[name])) if name in before else None)
        for name, look in looks.items()
    }


@dataclass(slots=True)
class _Snapshot:
    """A first timing of a call: its smallest sample, and the time to take it. A call that is long enough to be timed
    alone is ``long``."""

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
    # If each call is timed alone, samples of one call have no overhead for a regression to remove.
    clock.time_us(once, 1)
    return _Snapshot(once, 1, 0.0, sizes=(1,))


def _look(call: Callable[[], object], clock: Clock, turns: int, each_us: float) -> _Snapshot:
    """The smallest number of calls that is long enough for the clock.

    It is a multiple of ``turns``, the number of rotating inputs, so that each sample starts with the same input, last
    used as long ago as any other.
    """
    clock.time_us(call, turns)  # the first call loads, compiles and allocates
    time_us, spent_us = _sample_us(call, clock, turns)
    cycles, most = 1, max(_MOST_CALLS // turns, 1)
    while True:
        if time_us >= 0.8 * clock.sample_us and spent_us * _AGAIN_SHARE <= each_us:
            # It may be long only because of a disturbance, which seldom happens three times in a row.
            again = [_sample_us(call, clock, cycles * turns) for _ in range(2)]
            time_us, spent_us = min([(time_us, spent_us), *again])
        if time_us >= 0.8 * clock.sample_us or cycles == most:
            return _Snapshot(call, cycles * turns, spent_us, long=time_us / clock.sample_us if cycles == 1 else 0.0)
        wanted = ceil(cycles * clock.sample_us / max(time_us, clock.sample_us / 16))
        cycles = min(_rounded(max(wanted, cycles + 1)), most)
        time_us, spent_us = _sample_us(call, clock, cycles * turns)


def _rounded(count: int) -> int:
    """Round up to a number with three leading bits, so that a call timed again, with a slightly different first time,
    gets samples for which a clock has captured graphs.

    >>> [_rounded(count) for count in (1, 7, 9, 22, 25, 28, 29)]
    [1, 7, 10, 24, 28, 28, 32]
    """
    step = 1 << max(count.bit_length() - 3, 0)
    return ceil(count / step) * step


def _sample_us(call: Callable[[], object], clock: Clock, n: int) -> tuple[float, float]:
    """The time of a sample, and the time to take it."""
    begun_us = clock.now_us()
    return clock.time_us(call, n), clock.now_us() - begun_us


def _spread(looks: Sequence[_Snapshot], left_us: float, fewest_rounds: int) -> None:
    """Set the sample sizes of each call.

    If the budget is short, long calls get samples of fewer calls, all of them or none: other work is more likely to
    disturb long samples, and equal calls must be equally exposed to it.
    """
    spent_us = sum(look.spent_us for look in looks)
    fits = spent_us * sum(_SIZES) * FIRST_LOOK <= left_us
    shorter = spent_us * sum(_SHORT_SIZES) * fewest_rounds > left_us
    for look in looks:
        short = _SHORTEST if shorter and look.long >= _VERY_LONG else _SHORT_SIZES
        sizes = _SIZES if fits or not look.long else short
        look.sizes = look.sizes or tuple(look.n * size for size in sizes)
