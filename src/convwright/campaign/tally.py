"""Counts of a campaign so far, from all of its threads."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterable, Mapping

from convwright.core.observation import Observation, Outcome
from convwright.naming import singular


class Tally:
    """Observations by outcome, and problems."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._outcomes: Counter[Outcome] = Counter()
        self._problems = self._attempts = 0

    def add(self, observations: Iterable[Observation]) -> None:
        """Count one problem with these stored observations."""
        with self._lock:
            self._problems += 1
            self._outcomes.update(each.outcome for each in observations)

    def add_counts(self, problems: int, outcomes: Mapping[Outcome, int]) -> None:
        """Add the counts of another process."""
        with self._lock:
            self._problems += problems
            self._outcomes.update(outcomes)

    def next_attempt(self) -> int:
        """The number of an attempt, from 1."""
        with self._lock:
            self._attempts += 1
            return self._attempts

    @property
    def problems(self) -> int:
        return self._problems

    @property
    def rows(self) -> int:
        """The number of stored observations."""
        with self._lock:
            return self._outcomes.total()

    @property
    def outcomes(self) -> dict[Outcome, int]:
        with self._lock:
            return {outcome: self._outcomes[outcome] for outcome in Outcome}

    def __str__(self) -> str:
        return singular(f"{self.rows:,} rows of {self.problems:,} problems")
