"""The result of one run of a campaign."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from convwright.core.observation import Outcome
from convwright.core.record import Record
from convwright.naming import singular

_LEAST_S = 60  # enough for some problems on any machine


@dataclass(frozen=True, slots=True, repr=False)
class Sampled(Record):
    """``outcomes`` counts the observations stored by this run, by how they ended. ``tasks`` counts the campaign's
    problems by state, including earlier runs. ``unkept`` says why observations end with the process, if they do."""

    campaign: str
    device: str
    seconds: float
    problems: int
    outcomes: Mapping[str, int]
    tasks: Mapping[str, int]
    unkept: str | None = None

    @property
    def rows(self) -> int:
        """The number of observations that this run has stored."""
        return sum(self.outcomes.values())

    @property
    def rows_per_minute(self) -> float:
        return 60 * self.rows / self.seconds if self.seconds else 0.0

    def __repr__(self) -> str:
        return f"<Sampled: {self}>"

    def __str__(self) -> str:
        ended = ", ".join(
            f"{count:,} {outcome}" for outcome, count in self.outcomes.items() if count or outcome in _FIRST
        )
        count = singular(f"{self.rows:,} observations of {self.problems:,} problems")
        said = f"{count} on {self.device} in {self.seconds:,.0f} s ({self.rows_per_minute:,.0f} a minute): {ended}"
        return said if self.rows else f"{said}; {self._why_none}"

    @property
    def _why_none(self) -> str:
        """Why nothing was measured, and what to do."""
        longer = max(_LEAST_S, 4 * round(self.seconds))
        return f"the processes that measure need some seconds to start: give a longer time, such as {longer} s"


_FIRST = (Outcome.MEASURED,)
