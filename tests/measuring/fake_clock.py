"""A clock for tests: it knows what each call costs and disturbs it as a busy machine would."""

from __future__ import annotations

from collections.abc import Callable
from math import exp, pi, sin
from random import Random

from convwright.measuring.call import After


class FakeClock:
    """Time passes only while something is timed. A fake call returns its own cost in microseconds.

    Noise is log-normal, a few samples are hit by something far longer, and the machine slowly speeds up and slows down.
    In bursts, ``busy`` of the time, a process beside takes the core away from half of all samples, for about as long as
    they take. Like a GPU's, this clock cannot leave out what runs before a call, unless it is told that it can.
    """

    def __init__(
        self,
        seed: int = 0,
        *,
        noise: float = 0.01,
        outliers: float = 0.02,
        drift: float = 0.02,
        overhead_us: float = 8.0,
        busy: float = 0.0,
        leaves_out_before: bool = False,
        steady_to_us: float = 0.0,
    ) -> None:
        self.sample_us = 100.0
        self.leaves_out_before = leaves_out_before
        self.steady_to_us = steady_to_us
        self.samples: list[tuple[Callable[[], object], int]] = []
        self._random = Random(seed)
        self._noise, self._outliers, self._drift, self._overhead_us = noise, outliers, drift, overhead_us
        self._busy, self._burst, self._burst_ends_us = busy, False, 0.0
        self._now_us = 0.0

    def now_us(self) -> float:
        return self._now_us

    def time_us(self, call: Callable[[], object], n: int) -> float:
        if not isinstance(call, After):
            return self._sample_us(call, n, cost(call))
        first_us, own_us = cost(call.before), cost(call.call)
        if self.leaves_out_before:
            self._now_us += n * first_us
            return self._sample_us(call, n, own_us)
        return self._sample_us(call, n, first_us + own_us)

    def run(self, call: Callable[[], object], n: int) -> None:
        self._now_us += n * cost(call)

    def _sample_us(self, call: Callable[[], object], n: int, cost_us: float) -> float:
        time_us = (self._overhead_us + n * cost_us) * exp(self._random.gauss(0.0, self._noise))
        time_us *= 1 + self._drift * sin(2 * pi * self._now_us / 2e5)
        if self._random.random() < self._outliers:
            time_us *= 1 + self._random.expovariate(0.5)
        if self._in_a_burst() and self._random.random() < 0.5:
            time_us *= 1 + self._random.expovariate(1.0)
        self._now_us += time_us
        self.samples.append((call, n))
        return time_us

    def _in_a_burst(self) -> bool:
        if self._now_us >= self._burst_ends_us:
            self._burst = self._random.random() < self._busy
            self._burst_ends_us = self._now_us + self._random.uniform(1e4, 1e5)
        return self._burst


def cost(call: Callable[[], object]) -> float:
    cost_us = call()
    assert isinstance(cost_us, float)
    return cost_us
