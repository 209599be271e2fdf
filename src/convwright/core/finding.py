"""What is known about a candidate: frozen data that goes to JSON and back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from convwright.core.candidate import Candidate, Refusal
from convwright.core.record import Record

# The first word about a time that other work disturbed; it counts only in its own process.
UNSTABLE = "unstable"
# The first words about lack of memory, which may pass.
OUT_OF_MEMORY = "out of memory"
# How libraries report it: PyTorch, its CPU allocator, cuDNN in words (also when a GPU is too full for a handle), cuBLAS
# and cuDNN 8, cuDNN 9.
_SAYING_SO = (
    OUT_OF_MEMORY, "can't allocate memory", "could not allocate", "cuDNN could not start", "ALLOC_FAILED",
    "ALLOCATION_FAILED",
)  # fmt: skip


def says_out_of_memory(said: str) -> bool:
    """Whether the text of an error or failure reports lack of memory.

    >>> says_out_of_memory("failed: CUDA out of memory."), says_out_of_memory("failed: out of registers")
    (True, False)
    """
    return any(words in said for words in _SAYING_SO)


def may_pass(refusal: Refusal) -> bool:
    """Whether a refusal may not hold later, because memory was short."""
    return says_out_of_memory(refusal.reason)


@dataclass(frozen=True, slots=True)
class Interval(Record):
    """A figure with its 95 % confidence interval.

    >>> Interval(2.0, 1.5, 3.0).scaled(2.0)
    Interval(value=4.0, low=3.0, high=6.0)
    """

    value: float
    low: float
    high: float

    @classmethod
    def from_json(cls, record: Mapping[str, Any]) -> Interval:
        """Read a record, in which infinities and NaN may be words.

        >>> Interval.from_json({"value": 2.0, "low": 1.5, "high": "inf"})
        Interval(value=2.0, low=1.5, high=inf)
        """
        return cls(**{name: float(end) if isinstance(end, str) else end for name, end in record.items()})

    def at_least(self, least: float) -> Interval:
        """The same, with every bound at least ``least``."""
        return self.or_more(Interval(least, least, least))

    def plus(self, more: Interval | None) -> Interval:
        """The sum with another interval, if given; negative noise adds nothing."""
        if more is None:
            return self
        more = more.at_least(0.0)
        return Interval(self.value + more.value, self.low + more.low, self.high + more.high)

    def wider(self, by: float) -> Interval:
        """The same value with a wider interval."""
        return Interval(self.value, self.low - by, self.high + by)

    def known_above_0(self) -> Interval:
        """The same for a quantity that cannot be negative, such as a time. A value made negative by noise stays."""
        return Interval(self.value, max(self.low, min(self.value, 0.0)), self.high)

    def or_more(self, other: Interval) -> Interval:
        """The larger of both, bound by bound."""
        return Interval(max(self.value, other.value), max(self.low, other.low), max(self.high, other.high))

    def times(self, ratio: Interval) -> Interval:
        """The value times ``ratio``; the interval is the ratio's alone."""
        return Interval(self.value * ratio.value, self.value * ratio.low, self.value * ratio.high)

    def scaled(self, factor: float) -> Interval:
        """The interval times a number."""
        return Interval(self.value * factor, self.low * factor, self.high * factor)

    @property
    def relative_halfwidth(self) -> float:
        return (self.high - self.low) / 2 / abs(self.value) if self.value else float("inf")


@dataclass(frozen=True, slots=True)
class KindError(Record):
    """Both errors on one kind of data: relative L2, and the largest |y − y64| / (|x| ∗ |w|) in units of roundoff."""

    kind: str
    relative_l2: float
    scaled_max: float


@dataclass(frozen=True, slots=True)
class PairedRatio(Record):
    """The device time of a call divided by the time of PyTorch's own call ``own``. Both ran in each of ``rounds``
    rounds, so that a slowdown of both cancels. ``packing_ratio`` also counts the packing of the weight, if the
    candidate packs it."""

    own: str
    ratio: Interval
    rounds: int
    packing_ratio: Interval | None = None

    def of_call(self, *, weights_change: bool) -> Interval:
        """The ratio of whole calls, including packing if weights change."""
        return self.packing_ratio if weights_change and self.packing_ratio is not None else self.ratio

    @classmethod
    def from_json(cls, record: Mapping[str, Any]) -> PairedRatio:
        packing = record.get("packing_ratio")
        return cls(
            record["own"], Interval.from_json(record["ratio"]), record["rounds"],
            None if packing is None else Interval.from_json(packing),
        )  # fmt: skip


@dataclass(frozen=True, slots=True)
class Measurement(Record):
    """One measured candidate. Times are in microseconds. Unknown is None, never 0.

    ``prepare_us`` is the device time to pack the weight. ``energy_mj`` is the energy of one call, ±
    ``energy_halfwidth_mj``. ``peak_bytes`` is the most memory that a call adds, including its result. ``doubt`` says
    why a time is unreliable: a second timing with fresh inputs did not confirm it, or it is ``unstable`` because other
    work disturbed it. ``paired`` is the ratio to PyTorch's own call, where both ran in one run.
    """

    device_us: Interval
    prepare_us: Interval | None
    errors: tuple[KindError, ...]
    workspace_bytes: int
    samples: int
    conditions: tuple[tuple[str, str], ...]
    energy_mj: float | None = None
    energy_halfwidth_mj: float | None = None
    peak_bytes: int | None = None
    doubt: str | None = None
    paired: PairedRatio | None = None

    @property
    def unstable(self) -> bool:
        """True if the time is too uncertain to be used without measuring again."""
        return self.doubt is not None and self.doubt.startswith(UNSTABLE)

    def call_us(self, *, weights_change: bool) -> Interval:
        """Device time of one call, including packing if weights change."""
        return self.device_us.plus(self.prepare_us if weights_change else None).at_least(0.0)

    def to_json(self) -> dict[str, Any]:
        """Every figure unchanged, so that ``from_json`` restores it."""
        return asdict(self)

    @classmethod
    def from_json(cls, record: Mapping[str, Any]) -> Measurement:
        def interval(name: str) -> Interval | None:
            return Interval.from_json(record[name]) if record.get(name) is not None else None

        device_us = interval("device_us")
        assert device_us is not None
        return cls(
            device_us=device_us,
            prepare_us=interval("prepare_us"),
            errors=tuple(KindError(**error) for error in record["errors"]),
            workspace_bytes=record["workspace_bytes"],
            samples=record["samples"],
            conditions=tuple((name, value) for name, value in record["conditions"]),
            energy_mj=record.get("energy_mj"),
            energy_halfwidth_mj=record.get("energy_halfwidth_mj"),
            peak_bytes=record.get("peak_bytes"),
            doubt=record.get("doubt"),
            paired=None if record.get("paired") is None else PairedRatio.from_json(record["paired"]),
        )


@dataclass(frozen=True, slots=True)
class Finding(Record):
    """A candidate with what is known of it.

    ``failure`` says why a candidate that should have run did not; ``note`` says why a measurement is incomplete.
    """

    candidate: Candidate
    measurement: Measurement | None = None
    failure: str | None = None
    note: str | None = None
    remembered: bool = False

    @property
    def unstable(self) -> str | None:
        """Why other work on the machine left this open, with a remedy; None if it did not."""
        if self.measurement is not None:
            return self.measurement.doubt if self.measurement.unstable else None
        return self.note if self.note is not None and self.note.startswith(UNSTABLE) else None

    @property
    def is_open(self) -> bool:
        """True if a later search may find more: other work disturbed this one, or memory was short."""
        short = self.note is not None and self.note.startswith(OUT_OF_MEMORY)
        return short or self.unstable is not None
