"""Wall time that may be spent."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager


def wall_us() -> float:
    """Microseconds since any fixed moment."""
    return time.perf_counter_ns() / 1e3


class Budget:
    """``total_us`` of wall time from the moment it is made.

    What is excused comes on top: what one thing that could not be stopped once begun took of the least that is to be
    left for others. ``now_us`` tells the time.

    >>> moments = iter([0.0, 30.0, 30.0])
    >>> budget = Budget(100.0, now_us=lambda: next(moments))
    >>> budget.spent_us, budget.left_us
    (30.0, 70.0)
    """

    def __init__(self, total_us: float, *, now_us: Callable[[], float] | None = None) -> None:
        self.total_us = total_us
        self.excused_us = 0.0
        self.now_us = now_us or wall_us
        self._start_us = self.now_us()

    @property
    def spent_us(self) -> float:
        return self.now_us() - self._start_us

    @property
    def left_us(self) -> float:
        return self.total_us + self.excused_us - self.spent_us

    def has(self, share: float) -> bool:
        """True where at least this share of the whole is left."""
        return self.left_us >= share * self.total_us

    def has_any(self) -> bool:
        return self.left_us > 0

    def leave(self, share: float) -> None:
        """At least this share of the whole is left from now on."""
        self.excused_us += max(0.0, share * self.total_us - self.left_us)

    def part(self, share: float) -> Budget:
        """This share of what is left, beginning now."""
        return Budget(max(self.left_us, 0.0) * share, now_us=self.now_us)

    @contextmanager
    def paused(self) -> Iterator[None]:
        """What happens inside costs nothing: what a process does once is no cost of the problem met first."""
        begun_us = self.now_us()
        try:
            yield
        finally:
            self.give_back(self.now_us() - begun_us)

    def give_back(self, spent_us: float) -> None:
        """So much of what was spent costs nothing either."""
        self._start_us += spent_us
