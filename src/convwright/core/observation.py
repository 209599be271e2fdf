"""One measurement of one candidate, with everything needed to learn from it. Observations are only ever added.

A ``Finding`` is the latest knowledge of a candidate, for a choice. An ``Observation`` is the result of one measurement.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from enum import StrEnum
from typing import Any

from convwright.core.candidate import Candidate, Source
from convwright.core.dtype import Arithmetic
from convwright.core.finding import Interval, KindError, Measurement
from convwright.core.kinds.text import parse
from convwright.core.policy import Policy
from convwright.core.record import Record, as_record, property_names
from convwright.errors import BadInput

SCHEMA = "convwright observation 1"


class Outcome(StrEnum):
    """How an attempt to measure a candidate ended."""

    MEASURED = "measured"
    FAILED = "failed"
    """It raised an error, or its result was wrong."""
    CRASHED = "crashed"
    """It ended the process that ran it."""
    HUNG = "hung"
    """It had not ended by its deadline."""


@dataclass(frozen=True, slots=True)
class Observation(Record):
    """``device`` is a device's key, ``fingerprint`` the fingerprint of the candidate's backend.

    ``reason`` says why there is no measurement. ``rounds_us`` are the times of single rounds, from which the time and
    its interval were computed. ``mode`` is the measuring mode: "quick", "full" or "campaign". ``created`` is in seconds
    since 1970.
    """

    candidate: Candidate
    device: str
    fingerprint: str
    outcome: Outcome
    measurement: Measurement | None
    reason: str | None
    rounds_us: tuple[float, ...]
    policy: Policy
    mode: str
    budget_us: float | None
    created: float

    def to_json(self) -> dict[str, Any]:
        """Strict JSON, which ``from_json`` reads."""
        names = (each.name for each in fields(self) if each.name != "candidate")  # its problem would be slow to convert
        rest = {name: as_record(getattr(self, name), infinite=str) for name in names}
        return {"schema": SCHEMA, "candidate": candidate_record(self.candidate), **rest}

    @classmethod
    def from_json(cls, record: Mapping[str, Any]) -> Observation:
        if record.get("schema") != SCHEMA:
            raise BadInput(
                f"an observation must have the schema {SCHEMA!r}, got {record.get('schema')!r}: `convwright sample "
                "export` writes observations"
            )
        try:
            return cls(
                candidate=candidate_from_record(record["candidate"]),
                device=str(record["device"]),
                fingerprint=str(record["fingerprint"]),
                outcome=Outcome(record["outcome"]),
                measurement=None if record["measurement"] is None else _measurement(record["measurement"]),
                reason=None if record["reason"] is None else str(record["reason"]),
                rounds_us=tuple(map(float, record["rounds_us"])),
                policy=Policy(**record["policy"]),
                mode=str(record["mode"]),
                budget_us=None if record["budget_us"] is None else float(record["budget_us"]),
                created=float(record["created"]),
            )
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise BadInput(f"this is no record of {SCHEMA!r}: {error!r}") from error


def candidate_record(candidate: Candidate) -> dict[str, Any]:
    """A candidate as strict JSON, with the text of its problem and the candidates inside its rewrites."""
    inner = candidate.inner
    record = Record.to_json(replace(candidate, problem=None, inner=None))
    for name in property_names(Candidate):
        del record[name]
    return {**record, "problem": candidate.problem.key, "inner": None if inner is None else candidate_record(inner)}


def candidate_from_record(record: Mapping[str, Any]) -> Candidate:
    """The candidate that ``candidate_record`` wrote."""
    inner = record["inner"]
    known = {
        **record,
        "problem": parse(record["problem"]),
        "config": tuple((name, value) for name, value in record["config"]),
        "arithmetic": Arithmetic(record["arithmetic"]),
        "source": Source(record["source"]),
        "inner": None if inner is None else candidate_from_record(inner),
    }
    return Candidate(**known)


def _measurement(record: Mapping[str, Any]) -> Measurement:
    """A measurement, in which infinities are words."""
    known = Measurement.from_json(record)
    errors = tuple(KindError(each.kind, float(each.relative_l2), float(each.scaled_max)) for each in known.errors)
    prepare_us = known.prepare_us and _interval(known.prepare_us)
    return replace(known, device_us=_interval(known.device_us), prepare_us=prepare_us, errors=errors)


def _interval(known: Interval) -> Interval:
    return Interval(float(known.value), float(known.low), float(known.high))
