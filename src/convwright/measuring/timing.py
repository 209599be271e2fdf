"""The result of timing one call: frozen data that goes to JSON."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from convwright.core.finding import Interval
from convwright.core.record import Record, as_record
from convwright.measuring.cache import Cache
from convwright.measuring.conditions import Conditions
from convwright.measuring.energy import Energy


@dataclass(frozen=True, slots=True)
class Timing(Record):
    """The time of one call.

    ``overhead_us`` is the time of a sample beyond its calls; None if the call is so long that samples of two lengths
    did not fit into the budget, or if each call was timed alone. ``round_slopes_us`` are the slopes of the rounds that
    count, whose median is the time; timings of the same ``run`` can be compared pairwise. ``discarded`` counts rounds
    left out because the device was slowed down or, on a CPU, other work had the cores. ``disturbed`` is True if too
    many rounds had the latter to discard them. ``background`` lists other work that was noticed. ``unstable`` says why
    the time may be wrong, with a remedy.

    The rest exists if ``measure`` was asked for it: ``peak_extra_bytes`` is the most memory that the call adds,
    ``energy`` its energy, ``conditions`` the conditions of the measurement.
    """

    call_us: Interval
    overhead_us: float | None
    samples: int
    round_slopes_us: tuple[float, ...] = field(repr=False)
    unstable: str | None
    run: int
    discarded: int = 0
    disturbed: bool = False
    background: tuple[str, ...] = ()
    cache: Cache = Cache.HOT
    peak_extra_bytes: int | None = None
    energy: Energy | None = None
    conditions: Conditions = ()

    def to_json(self) -> dict[str, Any]:
        """All fields except ``run``, which is meaningful only in this process. Unknown is None."""
        record: dict[str, Any] = as_record(self)
        del record["run"]
        return record | {"conditions": dict(self.conditions)}
