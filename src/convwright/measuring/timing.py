"""What was found out about one call: frozen data that goes to JSON."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from convwright.core.finding import Interval
from convwright.core.record import Record, as_record
from convwright.measuring.cache import Cache
from convwright.measuring.conditions import Conditions
from convwright.measuring.energy import Energy


@dataclass(frozen=True, slots=True)
class Timing(Record):
    """What one call takes.

    ``overhead_us`` is what a sample took beyond its calls; None where the call is so long that samples of two lengths
    did not fit into the budget, or where each call was timed by itself. ``round_slopes_us`` are what the median was
    taken of, one for each round that counts; timings with the same ``run`` can be compared pairwise. ``discarded``
    rounds do not count, since the device was slowed down or, on a CPU, other work had the cores; ``disturbed`` is true
    where the latter was so in too many to discard them. ``background`` names the other work that showed, ``unstable``
    says why the figure may be so, and the cure.

    The rest is known where ``measure`` was asked for it: ``peak_extra_bytes`` is the most memory that the call holds
    beyond what was held before it, ``energy`` what it draws, ``conditions`` what all this was measured under.
    """

    call_us: Interval
    overhead_us: float | None
    samples: int
    round_slopes_us: tuple[float, ...]
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
        """Everything but ``run``, which means something in this process alone. None is what is not known."""
        record: dict[str, Any] = as_record(self)
        del record["run"]
        return record | {"conditions": dict(self.conditions)}
