"""A device that jobs can run on, and how many equal ones exist."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf

from convwright.core.record import Record
from convwright.errors import BadInput
from convwright.naming import check_above_0, check_name, check_not_below_0, is_whole


@dataclass(frozen=True, slots=True)
class Device(Record):
    """``count`` equal devices. ``power_cap_w`` and ``price_per_hour`` apply to each; None means no cap, or an unknown
    price.

    ``links`` are bandwidths in bytes per second to named places; each device has its own. Data on the device itself
    needs no link. ``kind`` is the name of the device for predictions ("h200"); None means ``name``.

    >>> Device("a100", 40 * 10**9, count=2, links=(("host", 20e9),)).instances
    ('a100/0', 'a100/1')
    """

    name: str
    memory_bytes: int
    count: int = 1
    power_cap_w: float | None = None
    price_per_hour: float | None = None
    links: tuple[tuple[str, float], ...] = ()
    kind: str | None = None

    def __post_init__(self) -> None:
        check_name("`name` of a device", self.name)
        for field in ("memory_bytes", "count"):
            value = getattr(self, field)
            if not (is_whole(value) and value > 0):
                raise BadInput(f"`{field}` of device {self.name!r} must be a whole number above 0, got {value!r}")
        if self.power_cap_w is not None:
            check_above_0(f"`power_cap_w` of device {self.name!r}", self.power_cap_w)
        if self.price_per_hour is not None:
            check_not_below_0(f"`price_per_hour` of device {self.name!r}", self.price_per_hour)
        if self.kind is not None and not (isinstance(self.kind, str) and self.kind):
            raise BadInput(f"`kind` of device {self.name!r} must be a device that convwright knows, got {self.kind!r}")
        for place, bandwidth in self.links:
            check_above_0(f"the link of device {self.name!r} to {place!r}", bandwidth)
        if len(dict(self.links)) != len(self.links):
            raise BadInput(f"device {self.name!r} has two links to the same place")

    @property
    def instances(self) -> tuple[str, ...]:
        return tuple(f"{self.name}/{number}" for number in range(self.count))

    def bandwidth(self, place: str | None) -> float | None:
        """Bytes per second to a place; None without a link, infinite if the data is there already."""
        return inf if place is None or place == self.name else dict(self.links).get(place)
