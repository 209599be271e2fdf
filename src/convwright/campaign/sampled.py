"""The result of one run of a campaign."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from convwright.core.observation import Outcome
from convwright.core.record import Record


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
        return (
            f"{self.rows:,} observations of {self.problems:,} problems on {self.device} in {self.seconds:,.0f} s "
            f"({self.rows_per_minute:,.0f} a minute): {ended}"
        )


_FIRST = (Outcome.MEASURED,)
