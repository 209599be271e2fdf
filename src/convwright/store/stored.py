"""The store's row for one candidate."""

from __future__ import annotations

from dataclasses import dataclass

from convwright.core.finding import Measurement
from convwright.store.measurement_text import record_of


@dataclass(frozen=True, slots=True)
class Stored:
    """What the store has about one candidate. ``created`` is in seconds since 1970."""

    fingerprint: str
    measurement: Measurement | None
    failure: str | None
    created: float


def stored_of(fingerprint: str, measurement: str | None, failure: str | None, created: float) -> Stored | None:
    """The row as data; None if this version cannot read the measurement."""
    try:
        body = None if measurement is None else Measurement.from_json(record_of(measurement))
    except (AssertionError, AttributeError, KeyError, TypeError, ValueError):
        return None
    return Stored(fingerprint, body, failure, created)


def is_readable(measurement: str | None) -> bool:
    """Whether this version can read a measurement."""
    return measurement is None or stored_of("", measurement, None, 0.0) is not None
