"""What was found out about a candidate: frozen data that goes to JSON and back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from convwright.core.candidate import Candidate, Refusal
from convwright.core.record import Record

# So begins what is said of a time that other work on the machine has disturbed, and that counts in its process only.
UNSTABLE = "unstable"
# And so what memory was too short for, which may be there another time.
OUT_OF_MEMORY = "out of memory"
# What libraries say of that: PyTorch, its CPU allocator, cuDNN in words, also where a GPU is too full for a handle,
# cuBLAS and cuDNN 8, cuDNN 9.
_SAYING_SO = (
    OUT_OF_MEMORY, "can't allocate memory", "could not allocate", "cuDNN could not start", "ALLOC_FAILED",
    "ALLOCATION_FAILED",
)  # fmt: skip


def says_out_of_memory(said: str) -> bool:
    """Whether what an error or a failure says is that there is no memory.

    >>> says_out_of_memory("failed: CUDA out of memory."), says_out_of_memory("failed: out of registers")
    (True, False)
    """
    return any(words in said for words in _SAYING_SO)


def may_pass(refusal: Refusal) -> bool:
    """Whether what was refused may be there another time, since it was memory that was short."""
    return says_out_of_memory(refusal.reason)


@dataclass(frozen=True, slots=True)
class Interval(Record):
    """A figure with its 95 % confidence interval."""

    value: float
    low: float
    high: float

    def at_least(self, least: float) -> Interval:
        """The same where nothing is less."""
        return self.or_more(Interval(least, least, least))

    def plus(self, more: Interval | None) -> Interval:
        """The sum, where there is more; what is noise below 0 adds nothing."""
        if more is None:
            return self
        more = more.at_least(0.0)
        return Interval(self.value + more.value, self.low + more.low, self.high + more.high)

    def wider(self, by: float) -> Interval:
        """The same figure, known so much less well."""
        return Interval(self.value, self.low - by, self.high + by)

    def known_above_0(self) -> Interval:
        """The same of what cannot be less than nothing, such as a time. A value that noise made negative stays."""
        return Interval(self.value, max(self.low, min(self.value, 0.0)), self.high)

    def or_more(self, other: Interval) -> Interval:
        """The greater of both, bound by bound."""
        return Interval(max(self.value, other.value), max(self.low, other.low), max(self.high, other.high))

    def times(self, ratio: Interval) -> Interval:
        """What takes ``ratio`` of this, of which the value is taken for granted."""
        return Interval(self.value * ratio.value, self.value * ratio.low, self.value * ratio.high)

    def scaled(self, factor: float) -> Interval:
        """So many times this."""
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
class Measurement(Record):
    """One candidate, measured. Times in microseconds; None is what could not be known, never 0.

    ``prepare_us`` is the device's time to pack the weight. ``energy_mj`` is the energy of one call, give or take
    ``energy_halfwidth_mj``; ``peak_bytes`` is the most memory that a call holds beyond what was held before it, its
    result included. ``doubt`` says why a time is not to be relied on: a second timing with fresh inputs did not bear it
    out, or it is ``unstable``, since other work disturbed it.
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

    @property
    def unstable(self) -> bool:
        """True where the time is so far from certain that whoever needs it has to measure again."""
        return self.doubt is not None and self.doubt.startswith(UNSTABLE)

    def call_us(self, *, weights_change: bool) -> Interval:
        """Device time of one call, with packing where weights change."""
        return self.device_us.plus(self.prepare_us if weights_change else None).at_least(0.0)

    def to_json(self) -> dict[str, Any]:
        """Every figure as it is, so that ``from_json`` gives the same again."""
        return asdict(self)

    @classmethod
    def from_json(cls, record: Mapping[str, Any]) -> Measurement:
        def interval(name: str) -> Interval | None:
            return Interval(**record[name]) if record.get(name) is not None else None

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
        )


@dataclass(frozen=True, slots=True)
class Finding(Record):
    """A candidate and what is known of it.

    ``failure`` says why a candidate that should have run did not; ``note`` why one was not measured to the end.
    """

    candidate: Candidate
    measurement: Measurement | None = None
    failure: str | None = None
    note: str | None = None
    remembered: bool = False

    @property
    def unstable(self) -> str | None:
        """Why other work on the machine kept this from being found out, with the cure; None where it did not."""
        if self.measurement is not None:
            return self.measurement.doubt if self.measurement.unstable else None
        return self.note if self.note is not None and self.note.startswith(UNSTABLE) else None

    @property
    def is_open(self) -> bool:
        """True where a later search may find out more: other work disturbed this one, or memory was short."""
        short = self.note is not None and self.note.startswith(OUT_OF_MEMORY)
        return short or self.unstable is not None
