"""A clock for tests: it knows what each call costs and disturbs it as a busy machine would."""

from __future__ import annotations

from collections.abc import Callable
from math import exp, pi, sin
from random import Random


class FakeClock:
    """Time passes only while something is timed. A fake call returns its own cost in microseconds.

    Noise is log-normal, a few samples are hit by something far longer, and the machine slowly speeds up and slows down.
    """

    def __init__(
        self,
        seed: int = 0,
        *,
        noise: float = 0.01,
        outliers: float = 0.02,
        drift: float = 0.02,
        overhead_us: float = 8.0,
    ) -> None:
        self.sample_us = 100.0
        self.samples: list[tuple[Callable[[], object], int]] = []
        self._random = Random(seed)
        self._noise, self._outliers, self._drift, self._overhead_us = noise, outliers, drift, overhead_us
        self._now_us = 0.0

    def now_us(self) -> float:
        return self._now_us

    def time_us(self, call: Callable[[], object], n: int) -> float:
        cost_us = call()
        assert isinstance(cost_us, float)
        time_us = (self._overhead_us + n * cost_us) * exp(self._random.gauss(0.0, self._noise))
        time_us *= 1 + self._drift * sin(2 * pi * self._now_us / 2e5)
        if self._random.random() < self._outliers:
            time_us *= 1 + self._random.expovariate(0.5)
        self._now_us += time_us
        self.samples.append((call, n))
        return time_us
