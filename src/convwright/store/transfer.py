"""Export and import of findings, searches and observations as lines of JSON.

The first line names the schema of the others. JSON has no infinities and NaNs: in a measurement these become the words
"inf", "-inf" and "nan".
"""

from __future__ import annotations

from codecs import BOM_UTF8
from collections.abc import Callable, Iterable, Iterator
from math import isfinite
from typing import Any, NamedTuple

from convwright import strict_json
from convwright.core.finding import Interval, Measurement
from convwright.core.observation import SCHEMA as OBSERVATION
from convwright.core.observation import Observation, Outcome
from convwright.errors import BadInput, StoreError
from convwright.naming import printable
from convwright.store.measurement_text import measurement_text, record_of
from convwright.store.observations import ObservationRow, row_of
from convwright.store.schema import SCHEMA_VERSION

_FIRST_SCHEMA = 2  # version 1 could not be exported
# Host times, which earlier versions exported.
_NO_LONGER_KEPT = ("host_us", "prepare_host_us")
# Error texts of libraries, which may have several lines.
_OF_LINES = ("failure", "reason")
_WORDS = ("inf", "-inf", "nan")
_FIGURES = (*Interval.__slots__, "relative_l2", "scaled_max", "energy_mj")
# Upper limits of plausible values: a pebibyte, and a thousand calls per second for some days.
_MOST = {"workspace_bytes": 2**50, "peak_bytes": 2**50, "samples": 10**9}


class FindingRow(NamedTuple):
    """A row of the table of findings. ``measurement`` is JSON."""

    problem: str
    device: str
    candidate: str
    fingerprint: str
    measurement: str | None
    failure: str | None
    created: float


class SearchRow(NamedTuple):
    """A row of the table of searches. ``candidates`` is JSON."""

    problem: str
    device: str
    scope: str
    candidates: str
    created: float


class Rows(NamedTuple):
    """The contents of lines of JSON."""

    findings: list[FindingRow]
    searches: list[SearchRow]
    observations: list[ObservationRow]


def to_lines(rows: Rows, bodies: Iterable[str] = ()) -> Iterator[str]:
    """A line for the schema, and a line for each finding, each search and each observation in ``bodies``, without line
    ends. An error if a row was edited into invalid JSON."""
    yield strict_json.dumps({"schema": SCHEMA_VERSION})
    for finding in rows.findings:
        body = None
        if finding.measurement is not None:
            body = strict_json.in_words(_kept(finding.measurement, finding, record_of))
        yield strict_json.dumps({"kind": "finding", **finding._asdict(), "measurement": body})
    for search in rows.searches:
        candidates = _kept(search.candidates, search, strict_json.loads)
        yield strict_json.dumps({"kind": "search", **search._asdict(), "candidates": candidates})
    for body in bodies:
        try:
            yield strict_json.dumps({"kind": "observation", **strict_json.loads(body)})
        except (ValueError, TypeError) as error:
            raise StoreError(f"the observation {body[:40]!r} is damaged in the store: {error}") from None


def _kept(text: str, row: FindingRow | SearchRow, read: Callable[[str], Any]) -> Any:
    try:
        return read(text)
    except ValueError as error:
        kind = f"the finding about {row.candidate}" if isinstance(row, FindingRow) else "a search"
        raise StoreError(f"{kind} for {row.problem} on {row.device} is damaged in the store: {error}") from None


def from_lines(lines: Iterable[str | bytes], name: str) -> Rows:
    """The contents of the file ``name``; an error with the line's number if a line is bad."""
    rows = Rows([], [], [])
    first = True
    for number, line in enumerate(lines, start=1):
        try:
            if first:
                _check_schema(_object(_without_mark(line)), name)
            else:
                _add(_object(line), rows)
        except BadInput:
            raise
        except (ValueError, RecursionError) as error:
            why = "it is nested too deeply" if isinstance(error, RecursionError) else str(error)
            raise BadInput(f"line {number} of {name} is not a line of exported findings: {why}") from None
        first = False
    if first:
        raise BadInput(f"{name} is empty; exported findings start with a line that names their schema")
    return rows


def _without_mark(line: str | bytes) -> str | bytes:
    """The line without the byte order mark that editors on Windows put at the start of a file."""
    return line.removeprefix(BOM_UTF8) if isinstance(line, bytes) else line.removeprefix("\ufeff")


def _object(line: str | bytes) -> dict[str, Any]:
    record = strict_json.loads(line)
    if not isinstance(record, dict):
        text = line.decode() if isinstance(line, bytes) else line
        raise ValueError(f"expected an object, got {text.strip()[:40]!r}")
    return record


def _check_schema(record: dict[str, Any], name: str) -> None:
    version = record.get("schema")
    if type(version) is not int or version < _FIRST_SCHEMA:
        raise ValueError(f'expected {{"schema": {SCHEMA_VERSION}}}')
    if version > SCHEMA_VERSION:
        raise BadInput(
            f"{name} was written by a newer convwright (schema {version}, this one knows {SCHEMA_VERSION}); "
            "upgrade convwright to import it"
        )


def _add(record: dict[str, Any], rows: Rows) -> None:
    kind = record.pop("kind", None)
    if kind == "finding":
        rows.findings.append(_finding(record))
    elif kind == "search":
        rows.searches.append(_search(record))
    elif kind == "observation":
        rows.observations.append(_observation(record))
    else:
        raise ValueError(f"`kind` must be finding, search or observation, got {kind!r}")


def _finding(record: dict[str, Any]) -> FindingRow:
    _check(record, FindingRow._fields)
    body = None if record["measurement"] is None else measurement_text(_measurement(record["measurement"]))
    return FindingRow(**(_printable(record) | {"measurement": body}))


def _search(record: dict[str, Any]) -> SearchRow:
    _check(record, SearchRow._fields)
    return SearchRow(**(_printable(record) | {"candidates": strict_json.dumps(_printable(record["candidates"]))}))


def _observation(record: dict[str, Any]) -> ObservationRow:
    """The observation in a record. It must keep everything that was given."""
    plain = _printable(record)
    try:
        observation = Observation.from_json(plain)
    except (BadInput, AssertionError) as error:
        raise ValueError(str(error) or "a measurement has a time") from None
    if observation.to_json() != plain:
        raise ValueError(f"an observation must hold what {OBSERVATION!r} holds, and nothing else")
    measured, (expected, holds) = observation.measurement, _RULES["created"]
    if not holds(observation.created):
        raise ValueError(f"`created` must be {expected}, got {observation.created:g}")
    if (measured is None) == (observation.outcome is Outcome.MEASURED):
        raise ValueError(f"`measurement` and `outcome` must agree, got the outcome {observation.outcome}")
    if measured is not None:
        if not _has_numbers(measured):
            raise ValueError("`measurement` must hold what a measurement holds")
        _check_times(measured)
        _check_amounts(measured)
    return row_of(observation, plain)


def _check(record: dict[str, Any], fields: tuple[str, ...]) -> None:
    if set(record) != set(fields):
        given = printable(", ".join(record))[:100] or "none"
        raise ValueError(f"expected the fields {', '.join(fields)}, got {given}")
    for field in fields:
        expected, holds = _RULES.get(field, _TEXT)
        if not holds(record[field]):
            raise ValueError(f"`{field}` must be {expected}, got {str(record[field])[:40]!r}")


def _is_text(value: Any) -> bool:
    # JSON can encode an unpaired surrogate, which no database accepts.
    return isinstance(value, str) and not any("\ud800" <= letter <= "\udfff" for letter in value)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


_TEXT: tuple[str, Callable[[Any], bool]] = ("text", _is_text)
_RULES: dict[str, tuple[str, Callable[[Any], bool]]] = {
    "measurement": ("an object or null", lambda value: value is None or isinstance(value, dict)),
    "failure": ("text or null", lambda value: value is None or _is_text(value)),
    "created": ("seconds since 1970", lambda value: _is_number(value) and 0 <= value < 1e11),
    "candidates": ("a list of texts", lambda value: isinstance(value, list) and all(map(_is_text, value))),
}


def _measurement(record: dict[str, Any]) -> Measurement:
    """The measurement in a record. It must keep everything that was given."""
    given = {name: value for name, value in record.items() if name not in _NO_LONGER_KEPT}
    plain = _printable(_in_numbers(given))
    try:
        measurement = Measurement.from_json(plain)
        lossless = _sorted(measurement.to_json() | plain) == _sorted(measurement.to_json())
    except (KeyError, TypeError, ValueError, AttributeError, AssertionError):
        lossless = False
    if not lossless or not _has_numbers(measurement):
        raise ValueError("`measurement` must hold what a measurement holds")
    _check_times(measurement)
    _check_amounts(measurement)
    return measurement


def _check_times(measured: Measurement) -> None:
    """A difference of times that drowned in noise may be negative, with infinite bounds; a call's own time may not."""
    for name, ratio in _ratios(measured).items():
        if not (0 < ratio.low <= ratio.value <= ratio.high and isfinite(ratio.high)):
            raise ValueError(f"`{name}` must be finite and above 0 within its bounds, got {ratio.value:g}")
    for name, given in _times(measured).items():
        is_own = name == "device_us"
        if not (isfinite(given.value) and given.low <= given.value <= given.high) or (is_own and given.value <= 0):
            expected = "a finite time above 0" if is_own else "a finite time"
            raise ValueError(
                f"`{name}` must be {expected} within its bounds, "
                f"got {given.value:g} between {given.low:g} and {given.high:g}"
            )


def _check_amounts(measured: Measurement) -> None:
    """Sizes and counts must be whole and plausible; errors and energy must not be negative."""
    for name, most in _MOST.items():
        count = getattr(measured, name)
        if count is not None and not (type(count) is int and 0 <= count <= most):
            raise ValueError(f"`{name}` must be a whole number from 0 to {most:,}, got {str(count)[:40]}")
    amounts = [("energy_mj", measured.energy_mj), ("energy_halfwidth_mj", measured.energy_halfwidth_mj)]
    for error in measured.errors:
        amounts += [("relative_l2", error.relative_l2), ("scaled_max", error.scaled_max)]
    for name, amount in amounts:
        if amount is not None and amount < 0:
            raise ValueError(f"`{name}` must be at least 0, got {amount:g}")


def _times(measured: Measurement) -> dict[str, Interval]:
    """The times that were measured."""
    every = {name: getattr(measured, name) for name in ("device_us", "prepare_us")}
    return {name: interval for name, interval in every.items() if interval}


def _ratios(measured: Measurement) -> dict[str, Interval]:
    """The ratios to PyTorch's own call."""
    paired = measured.paired
    every = {} if paired is None else {"ratio": paired.ratio, "packing_ratio": paired.packing_ratio}
    return {name: interval for name, interval in every.items() if interval}


def _has_numbers(measured: Measurement) -> bool:
    intervals = (*_times(measured).values(), *_ratios(measured).values())
    figures = [getattr(interval, name) for interval in intervals for name in Interval.__slots__]
    figures += [figure for error in measured.errors for figure in (error.relative_l2, error.scaled_max)]
    figures += [measured.workspace_bytes, measured.samples]
    rare = (measured.energy_mj, measured.energy_halfwidth_mj, measured.peak_bytes)
    figures += [figure for figure in rare if figure is not None]
    texts = [error.kind for error in measured.errors] + [word for pair in measured.conditions for word in pair]
    texts += [] if measured.doubt is None else [measured.doubt]
    if measured.paired is not None:
        figures.append(measured.paired.rounds)
        texts.append(measured.paired.own)
    return all(map(_is_number, figures)) and all(map(_is_text, texts))


def _printable(data: Any) -> Any:
    """Records, lists and texts, with printable texts."""
    if isinstance(data, dict):
        return {
            printable(name): printable(value, lines=True) if name in _OF_LINES and value else _printable(value)
            for name, value in data.items()
        }
    if isinstance(data, list):
        return [_printable(value) for value in data]
    return printable(data) if isinstance(data, str) else data


def _sorted(data: Any) -> str:
    return strict_json.dumps(strict_json.in_words(data), sort_keys=True)


def _in_numbers(data: Any) -> Any:
    """Undo ``strict_json.in_words`` for values that are numbers by nature."""
    if isinstance(data, dict):
        return {name: _figure(value) if name in _FIGURES else _in_numbers(value) for name, value in data.items()}
    return [_in_numbers(value) for value in data] if isinstance(data, list) else data


def _figure(value: Any) -> Any:
    return float(value) if isinstance(value, str) and value in _WORDS else value
