"""The settings of a campaign: what it draws, and how it measures."""

from __future__ import annotations

from dataclasses import dataclass

from convwright.core.record import Record
from convwright.errors import BadInput
from convwright.naming import check_above_0, is_whole

# The mode in all observations from campaigns.
MODE = "campaign"
# The time for the timing rounds of one candidate.
TIMING_US = {"cuda": 25_000.0, "cpu": 50_000.0}
DEADLINE_S = 60.0
REPEAT = 0.05
# With equally many rows, a model of 170 problems with 8 candidates each had 41 % error on others (median, H200), one of
# 41 problems with all candidates 52 %. But the quality of choices can be judged only where most candidates are known.
MOST_CANDIDATES = 12
_WELL_KNOWN, _TIMES_MORE = 8, 4


@dataclass(frozen=True, slots=True)
class Campaign(Record):
    """Equal campaigns draw equal problems on equal devices.

    ``shares`` says how often problems come from each source. ``repeat`` is the share of problems that are measured
    again later. ``energy_every`` is the number of timings per measurement of energy, None for none. ``timing_us`` is
    the time for the rounds of one candidate, ``deadline_s`` its limit including everything else. ``most`` is the number
    of candidates measured per problem; one problem in eight gets four times as many. An ``adaptive`` campaign draws
    more problems and measures those that a predictor knows least of.
    """

    name: str
    seed: int
    shares: tuple[tuple[str, float], ...]
    repeat: float = REPEAT
    energy_every: int | None = None
    timing_us: float = TIMING_US["cpu"]
    deadline_s: float = DEADLINE_S
    most: int = MOST_CANDIDATES
    adaptive: bool = False

    def __post_init__(self) -> None:
        if not (isinstance(self.name, str) and self.name.strip()):
            raise BadInput(f"a campaign needs a name, got {self.name!r}")
        if not (is_whole(self.seed) and self.seed >= 0):
            raise BadInput(f"`seed` must be a whole number that is not negative, got {self.seed!r}")
        if not (isinstance(self.repeat, int | float) and 0 <= self.repeat <= 1):
            raise BadInput(f"`repeat` is a share of the problems, between 0 and 1, got {self.repeat!r}")
        if self.energy_every is not None and not (is_whole(self.energy_every) and self.energy_every > 0):
            raise BadInput(f"`energy_every` must be a whole number above 0, or None, got {self.energy_every!r}")
        if not (is_whole(self.most) and self.most > 0):
            raise BadInput(f"`most` must be a whole number above 0, got {self.most!r}")
        check_above_0("`timing_us`", self.timing_us)
        check_above_0("`deadline_s`", self.deadline_s)

    def most_of(self, number: int) -> int:
        """How many candidates of the problem with this number are measured."""
        return self.most if number % _WELL_KNOWN else _TIMES_MORE * self.most

    @property
    def drawn_by(self) -> str:
        """Text of everything that determines the drawn problems."""
        shares = " ".join(f"{name}={share:g}" for name, share in self.shares)
        return f"seed {self.seed}, {shares}, {self.repeat:g} again{', adaptive' * self.adaptive}"
