"""The contents of the store, as tables for people and as data."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from convwright.core.problem import ConvProblem
from convwright.errors import BadInput
from convwright.naming import singular
from convwright.report.words.amounts import date_text, iso_text, time_text
from convwright.report.words.sheet import Sheet
from convwright.store.quarantine import Place, Quarantined
from convwright.store.stored import Stored
from convwright.store.upkeep import KnownProblem, Summary
from convwright.wording.compact import compact

_COUNTS = ("problems", "findings", "failures", "observations")
_FOLDED = ("device", "problem", "candidate", "why", "fingerprint", "device time")


def print_summary(summary: Summary, console: Console) -> None:
    """Print the store's place and size, and one row per device."""
    console.print(Text(f"{summary.place} · {summary.nbytes / 1e6:.3g} MB · schema {summary.schema}"))
    console.print(f"finished searches: {summary.searches}; in quarantine: {summary.quarantined}")
    if not summary.devices:
        console.print("nothing is remembered yet")
        return
    rows = [
        (
            singular(each.device),
            each.problems,
            each.findings,
            each.failures,
            each.observations,
            date_text(each.newest),
            date_text(each.oldest),
        )
        for each in summary.devices
    ]
    names = ("device", "problems", "findings", "failures", "observations", "newest", "oldest")
    kept = ("device", "problems", "findings", "observations")
    console.print(_table(names, rows, console.width, kept=kept))


def summary_to_json(summary: Summary) -> dict[str, Any]:
    """The same as data. Dates are in ISO 8601. ``device_key`` is the device's name in findings."""
    counts = ("problems", "findings", "failures", "observations")
    return {
        "path": summary.place,
        "schema": summary.schema,
        "nbytes": summary.nbytes,
        "note": summary.note,
        "searches": summary.searches,
        "quarantined": summary.quarantined,
        "devices": [
            _device_to_json(each.device)
            | {name: getattr(each, name) for name in counts}
            | {"oldest": iso_text(each.oldest), "newest": iso_text(each.newest)}
            for each in summary.devices
        ],
    }


def print_problems(problems: Iterable[KnownProblem], console: Console) -> None:
    """One row per problem and device."""
    rows = [
        (_short(each.problem), singular(each.device), each.findings, each.failures, date_text(each.newest))
        for each in problems
    ]
    if rows:
        names = ("problem", "device", "findings", "failures", "newest")
        console.print(_table(names, rows, console.width, kept=("problem", "device", "findings")))
    else:
        console.print("nothing is remembered yet")


def problems_to_json(problems: Iterable[KnownProblem]) -> list[dict[str, Any]]:
    """The same as data, with the problem's key in the store. Dates are in ISO 8601."""
    return [
        {"problem": each.problem}
        | _device_to_json(each.device)
        | {"findings": each.findings, "failures": each.failures, "newest": iso_text(each.newest)}
        for each in problems
    ]


def print_known(key: str, known: Mapping[str, Mapping[str, Stored]], console: Console) -> None:
    """Print the findings of one problem for each device, the fastest first."""
    console.print(Text(key, style="bold"))
    if not known:
        console.print("nothing is remembered of it")
    for device, findings in known.items():
        console.print(Text(singular(device)))
        rows = [
            (name, _outcome(stored), date_text(stored.created), stored.fingerprint)
            for name, stored in sorted(findings.items(), key=lambda item: _rank(item[1]))
        ]
        names = ("candidate", "device time", "found", "fingerprint")
        console.print(_table(names, rows, console.width, kept=names[:2]))


def known_to_json(key: str, known: Mapping[str, Mapping[str, Stored]]) -> dict[str, Any]:
    """The same as data."""
    return {
        "problem": key,
        "devices": {
            device: {name: _stored_to_json(stored) for name, stored in findings.items()}
            for device, findings in known.items()
        },
    }


def print_quarantine(kept: Mapping[Place, Quarantined], console: Console) -> None:
    """One row per candidate, with the reason."""
    rows = [
        (
            place.candidate,
            _short(place.problem),
            singular(place.device),
            each.why,
            date_text(each.since),
            each.fingerprint,
        )
        for place, each in kept.items()
    ]
    if rows:
        names = ("candidate", "problem", "device", "why", "since", "fingerprint")
        console.print(_table(names, rows, console.width, kept=("candidate", "why", "problem", "device")))
    else:
        console.print("nothing is in quarantine")


def quarantine_to_json(kept: Mapping[Place, Quarantined]) -> list[dict[str, Any]]:
    """The same as data."""
    return [
        {**place._asdict(), "fingerprint": each.fingerprint, "since": iso_text(each.since), "why": each.why}
        for place, each in kept.items()
    ]


def _device_to_json(key: str) -> dict[str, str]:
    return {"device": singular(key), "device_key": key}


def _short(key: str) -> str:
    """A problem's key in its short form; a text that is not a key is unchanged."""
    try:
        return compact(ConvProblem.parse(key))
    except BadInput:
        return key


def _stored_to_json(stored: Stored) -> dict[str, Any]:
    return {
        "fingerprint": stored.fingerprint,
        "created": iso_text(stored.created),
        "failure": stored.failure,
        "measurement": stored.measurement.to_json() if stored.measurement else None,
    }


def _outcome(stored: Stored) -> str:
    return time_text(stored.measurement.device_us.value) if stored.measurement else stored.failure or "–"


def _rank(stored: Stored) -> float:
    return stored.measurement.device_us.value if stored.measurement else float("inf")


def _table(names: Sequence[str], rows: Iterable[Sequence[object]], width: int, *, kept: Sequence[str]) -> Table:
    """The columns that fit; those in ``kept`` are left out last. Names may be broken over lines, figures may not."""
    cells = tuple(dict(zip(names, map(str, row), strict=True)) for row in rows)
    left = tuple(name for name in names if name not in _COUNTS)
    return Sheet(tuple(names), cells, tuple(kept), tuple(name for name in left if name in _FOLDED), left).table(width)
