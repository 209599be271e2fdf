"""The timer: several calls side by side, each to a wanted precision, within a budget."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from itertools import count
from math import ceil
from random import Random
from statistics import median

import torch

from convwright.core.finding import Interval
from convwright.errors import BadInput
from convwright.measuring.clock import Call, Clock, CudaGraphClock, WallClock, rotating
from convwright.measuring.compare import beyond_tie
from convwright.measuring.regression import fit_line, median_interval, paired_ratio

# The outer two of three sizes fix the slope, the middle one shows whether time is linear in n at all. Wider apart
# the slope would be no better for the time spent: noise grows with the length of a sample.
_SIZES = (1, 3, 4)
_FEWEST_ROUNDS = 2
_FIRST_LOOK = 10
_MOST_CALLS = 1 << 16
_run_numbers = count()


@dataclass(frozen=True, slots=True)
class Timing:
    """What one call takes.

    ``overhead_us`` is what a sample took beyond its calls; None where the call is so long that samples of two
    lengths did not fit into the budget. ``round_slopes_us`` are what the median was taken of, one for each round;
    timings with the same ``run`` can be compared pairwise. ``unstable`` says why not to trust the figure, and the cure.
    """

    call_us: Interval
    overhead_us: float | None
    samples: int
    round_slopes_us: tuple[float, ...]
    unstable: str | None
    run: int


@dataclass(slots=True)
class _Subject:
    """One call under measurement: how many calls its samples have, and what they took, one tuple for each round."""

    call: Callable[[], object]
    sizes: tuple[int, ...]
    rounds: list[tuple[float, ...]] = field(default_factory=list)
    slopes: list[float] = field(default_factory=list)

    def add(self, times_us: tuple[float, ...]) -> None:
        self.rounds.append(times_us)
        self.slopes.append(fit_line(self.sizes, times_us).slope.value if len(times_us) > 1 else times_us[0])


def measure_calls(
    calls: Mapping[str, Call],
    *,
    clock: Clock,
    budget_us: float,
    precision: float = 0.01,
    seed: int = 0,
) -> dict[str, Timing]:
    """Time all calls, interleaved in random order, until each is known to ± ``precision`` / 2.

    A round visits every call at several n and gives each one slope; the median of the slopes is the time of a call.
    Rounds end when every interval is narrow enough and no call is left undecided beside the fastest, or when the next
    round would not fit into ``budget_us``; there are at least two.
    """
    if not calls or budget_us <= 0 or precision <= 0:
        raise BadInput(
            f"a run needs calls, a budget and a precision above 0, got {len(calls)}, {budget_us}, {precision}"
        )
    end_us, random, number = clock.now_us() + budget_us, Random(seed), next(_run_numbers)
    subjects = {}
    for left, (name, call) in zip(range(len(calls), 0, -1), calls.items(), strict=True):
        once = rotating(call)
        subjects[name] = _Subject(once, _calibrate(once, clock, budget_us, (end_us - clock.now_us()) / left))
    _run_rounds(list(subjects.values()), clock, end_us, precision, random)
    return {name: _timing(subject, precision, number) for name, subject in subjects.items()}


def measure(
    call: Call,
    *,
    device: str | torch.device | None = None,
    clock: Clock | None = None,
    budget_us: float = 1e6,
    precision: float = 0.01,
    seed: int = 0,
) -> Timing:
    """Time one call. Where it runs is told by the tensor that it returns, unless ``device`` says it.

    >>> timing = measure(lambda: sum(range(1000)), device="cpu", budget_us=20_000)
    >>> timing.call_us.low <= timing.call_us.value <= timing.call_us.high
    True
    """
    clock = clock or _clock_for(call, device)
    return measure_calls({"": call}, clock=clock, budget_us=budget_us, precision=precision, seed=seed)[""]


def _clock_for(call: Call, device: str | torch.device | None) -> Clock:
    if device is None:
        result = rotating(call)()
        if isinstance(result, torch.Tensor):
            device = result.device
        elif torch.cuda.is_available():
            raise BadInput("`device` must be given for a call that returns no tensor: it may run on a CPU or a GPU")
    where = torch.device(device or "cpu")
    return CudaGraphClock(where) if where.type == "cuda" else WallClock()


def _calibrate(call: Callable[[], object], clock: Clock, budget_us: float, share_us: float) -> tuple[int, ...]:
    """The numbers of calls of this subject's samples: the smallest sample is long enough for the clock."""
    clock.time_us(call, 1)  # The first call loads, compiles and allocates.
    n, time_us = 1, clock.time_us(call, 1)
    while time_us < 0.8 * clock.sample_us and n < _MOST_CALLS:
        wanted = ceil(n * clock.sample_us / max(time_us, clock.sample_us / 16))
        n = min(max(wanted, n + 1), _MOST_CALLS)
        time_us = clock.time_us(call, n)
    if n == 1 and time_us * 3 * _FEWEST_ROUNDS > budget_us:
        return (1,)
    if n == 1 and time_us * sum(_SIZES) * _FIRST_LOOK > share_us:
        return (1, 2)
    return tuple(n * size for size in _SIZES)


def _run_rounds(subjects: list[_Subject], clock: Clock, end_us: float, precision: float, random: Random) -> None:
    samples = [(index, n) for index, subject in enumerate(subjects) for n in subject.sizes]
    look, done = _FIRST_LOOK, 0
    while True:
        begun_us = clock.now_us()
        random.shuffle(samples)
        taken = {(index, n): clock.time_us(subjects[index].call, n) for index, n in samples}
        for index, subject in enumerate(subjects):
            subject.add(tuple(taken[index, n] for n in subject.sizes))
        done, now_us = done + 1, clock.now_us()
        if done >= _FEWEST_ROUNDS and now_us + (now_us - begun_us) > end_us:
            return
        if done >= look:
            # A look at each round would stop at the first interval that is narrow by luck: fewer looks, fewer such.
            look = ceil(done * 1.25)
            if _settled(subjects, precision):
                return


def _settled(subjects: list[_Subject], precision: float) -> bool:
    if any(median_interval(subject.slopes).relative_halfwidth > precision / 2 for subject in subjects):
        return False
    fastest = min(subjects, key=lambda subject: median(subject.slopes))
    ratios = (paired_ratio(subject.slopes, fastest.slopes) for subject in subjects if subject is not fastest)
    return all(beyond_tie(ratio) or ratio.relative_halfwidth <= precision / 2 for ratio in ratios)


def _timing(subject: _Subject, precision: float, run: int) -> Timing:
    call_us = median_interval(subject.slopes)
    lines = [fit_line(subject.sizes, times) for times in subject.rounds] if len(subject.sizes) > 1 else []
    return Timing(
        call_us=call_us,
        overhead_us=median(line.intercept for line in lines) if lines else None,
        samples=len(subject.rounds) * len(subject.sizes),
        round_slopes_us=tuple(subject.slopes),
        unstable="; ".join(_complaints(subject, call_us, precision)) or None,
        run=run,
    )


def _complaints(subject: _Subject, call_us: Interval, precision: float) -> list[str]:
    """Why the figure may be wrong, each with its cure."""
    found, half = [], len(subject.slopes) // 2
    if call_us.relative_halfwidth > precision / 2:
        found.append(
            f"known to ±{call_us.relative_halfwidth:.1%} only, ±{precision / 2:.1%} was asked, after "
            f"{len(subject.slopes)} rounds: give a larger budget, or stop other work on the machine"
        )
    early, late = median_interval(subject.slopes[:half]), median_interval(subject.slopes[half:])
    apart = early.high < late.low or late.high < early.low
    if half >= _FIRST_LOOK // 2 and apart and abs(late.value / early.value - 1) > precision:
        found.append(
            f"later rounds took {late.value / early.value:.3f} times as long as earlier ones: clocks change or the "
            "device grows warm; lock the clocks, or run longer before measuring"
        )
    if (bend := _bend(subject)) > 2 * precision:
        found.append(
            f"time is not linear in the number of calls, off by {bend:.1%}: calls influence each other, "
            "through a cache, a queue or memory that grows"
        )
    return found


def _bend(subject: _Subject) -> float:
    """How far samples of the middle size surely lie off the line through the other two, as a share of their time."""
    if len(subject.sizes) < 3:
        return 0.0
    few, some, many = subject.sizes
    weight = (some - few) / (many - few)
    off = median_interval([(b - a - weight * (c - a)) / b for a, b, c in subject.rounds])
    return max(off.low, -off.high, 0.0)
