"""As many rows as there is time for."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from time import perf_counter
from typing import TypeVar

_Row = TypeVar("_Row")
_GRACE_S = 20.0


class Pace:
    """The time since it was made, and how much of it there may be."""

    def __init__(self, limit_s: float) -> None:
        self.end_s = perf_counter() + limit_s
        self._longest_s = 0.0

    def patience_s(self, most_s: float) -> float:
        """How long to wait for an answer: somewhat beyond the end at most."""
        return min(most_s, max(self.end_s - perf_counter(), 0.0) + _GRACE_S)

    def rows(self, wanted: Sequence[_Row]) -> Iterator[_Row]:
        """Those of ``wanted``, one after the other, that end in time if none takes longer than the longest so far."""
        for done, row in enumerate(wanted):
            begun_s = perf_counter()
            if begun_s + self._longest_s > self.end_s:
                return
            yield row
            if done:  # the first one waits for processes to start
                self._longest_s = max(self._longest_s, perf_counter() - begun_s)


def sliced(text: str) -> slice:
    """The rows that are meant, as in Python: from, to, and every how many.

    >>> sliced("40:"), sliced("0:94:3")
    (slice(40, None, None), slice(0, 94, 3))
    """
    ends = [int(word) if word else None for word in text.split(":")]
    if len(ends) < 2:
        raise ValueError(text)
    return slice(*ends)
