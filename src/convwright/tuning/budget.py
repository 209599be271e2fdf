"""A wall-time budget."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager


def wall_us() -> float:
    """Microseconds since an arbitrary fixed moment."""
    return time.perf_counter_ns() / 1e3


class Budget:
    """``total_us`` of wall time from the moment of creation.

    Excused time is added to it: an uninterruptible task may overrun the part reserved for others. A search that learns
    how long its calls are may ``stretch`` it up to ``most_us``. ``now_us`` returns the time.

    >>> moments = iter([0.0, 30.0, 30.0])
    >>> budget = Budget(100.0, now_us=lambda: next(moments))
    >>> budget.spent_us, budget.left_us
    (30.0, 70.0)
    """

    def __init__(self, total_us: float, *, most_us: float = 0.0, now_us: Callable[[], float] | None = None) -> None:
        self.total_us, self.most_us = total_us, max(total_us, most_us)
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
        """Whether at least this share of the total is left."""
        return self.left_us >= share * self.total_us

    def has_any(self) -> bool:
        return self.left_us > 0

    def stretch(self, needed_us: float) -> None:
        """Make the total as long as needed, as far as it may be."""
        self.total_us = max(self.total_us, min(needed_us, self.most_us))

    def leave(self, share: float) -> None:
        """Make sure that at least this share of the total is left."""
        self.excused_us += max(0.0, share * self.total_us - self.left_us)

    def part(self, share: float) -> Budget:
        """A budget of this share of what is left, starting now."""
        return Budget(max(self.left_us, 0.0) * share, now_us=self.now_us)

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Time inside does not count: one-time setup must not be charged to the first problem."""
        begun_us = self.now_us()
        try:
            yield
        finally:
            self.give_back(self.now_us() - begun_us)

    def give_back(self, spent_us: float) -> None:
        """Do not count this much of the time spent."""
        self._start_us += spent_us
