"""The predicted or measured time, memory and power of one batch of a job on a device."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf

from convwright.core.finding import Interval
from convwright.core.record import Record
from convwright.errors import BadInput
from convwright.naming import check_above_0, check_not_below_0, is_whole


@dataclass(frozen=True, slots=True)
class Estimate(Record):
    """A batch of jobs with this ``key`` on a ``device``: its time, its total memory including weights, and its mean
    power, None if unknown."""

    key: str
    device: str
    batch: int
    time_us: Interval
    memory_bytes: int
    power_w: float | None = None

    def __post_init__(self) -> None:
        name = f"of the estimate of {self.key!r} on device {self.device!r}"
        if not (is_whole(self.batch) and self.batch > 0):
            raise BadInput(f"`batch` {name} must be a whole number above 0, got {self.batch!r}")
        time = self.time_us
        if not isinstance(time, Interval):
            raise BadInput(f"`time_us` {name} must be an Interval, got {time!r}")
        if not (0 < time.low <= time.value <= time.high < inf):
            raise BadInput(
                f"`time_us` {name} must have 0 < low <= value <= high, all of them finite, got {time.value:g} "
                f"({time.low:g} to {time.high:g})"
            )
        check_not_below_0(f"`memory_bytes` {name}", self.memory_bytes)
        if self.power_w is not None:
            check_above_0(f"`power_w` {name}", self.power_w)
