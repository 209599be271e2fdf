"""Read jobs, devices, models and estimates from a TOML file."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import MISSING, dataclass, fields
from pathlib import Path
from typing import Any, TypeVar

from convwright.core.finding import Interval
from convwright.errors import BadInput
from convwright.placement.devices import Device
from convwright.placement.estimates import Estimate
from convwright.placement.jobs import Job
from convwright.placement.model_targets import ModelTarget

_KINDS: dict[str, type[Job] | type[Device] | type[Estimate] | type[ModelTarget]] = {
    "job": Job, "device": Device, "model": ModelTarget, "estimate": Estimate,
}  # fmt: skip
_Made = TypeVar("_Made", Job, Device, Estimate, ModelTarget)


@dataclass(frozen=True, slots=True)
class Spec:
    """The contents of a file: the arguments of ``place``, and where models are found."""

    jobs: tuple[Job, ...]
    devices: tuple[Device, ...]
    estimates: tuple[Estimate, ...]
    models: tuple[ModelTarget, ...] = ()


def read_spec(path: Path | str) -> Spec:
    """Read a TOML file with tables ``[[job]]``, ``[[device]]``, ``[[model]]`` and ``[[estimate]]``, which have the
    fields of ``Job``, ``Device``, ``ModelTarget`` and ``Estimate``.

    ``links`` is a table of bandwidths by place. ``time_us`` is a number, or a table of ``value``, ``low`` and ``high``.
    Errors name the line.
    """
    path = Path(path)
    try:
        return parse_spec(path.read_text(encoding="utf-8-sig"), path.name)
    except IsADirectoryError:
        raise BadInput(f"{path} is a folder: give a file of TOML, with tables [[job]] and [[device]]") from None
    except OSError as error:
        raise BadInput(f"{path} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise BadInput(f"{path} is not UTF-8 text") from None


def parse_spec(text: str, name: str = "the text") -> Spec:
    """Read the same from a text; ``name`` names it in errors.

    >>> found = parse_spec('''
    ... [[job]]
    ... name = "night run"
    ... key = "resnet50"
    ... batches = [8]
    ... images = 1000
    ... [[device]]
    ... name = "gpu"
    ... memory_bytes = 80_000_000_000
    ... links = {host = 25e9}
    ... [[estimate]]
    ... key = "resnet50"
    ... device = "gpu"
    ... batch = 8
    ... time_us = {value = 2000.0, low = 1900.0, high = 2100.0}
    ... memory_bytes = 500_000_000
    ... ''')
    >>> found.jobs[0].images, found.devices[0].links, found.estimates[0].time_us.high
    (1000, (('host', 25000000000.0),), 2100.0)
    """
    try:
        tables = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise BadInput(f"{name} is not TOML: {error}") from None
    for kind, given in tables.items():
        if kind not in _KINDS:
            raise BadInput(
                f"{name}{_line(text, kind, 0)}: {kind!r} is not known; the tables are [[job]], [[device]], [[model]] "
                "and [[estimate]]"
            )
        if not (isinstance(given, list) and all(isinstance(each, dict) for each in given)):
            raise BadInput(f"{name}{_line(text, kind, 0)}: {kind} must be tables, each under [[{kind}]]")

    def every(kind: type[_Made], word: str) -> tuple[_Made, ...]:
        return tuple(_made(kind, word, number, each, text, name) for number, each in enumerate(tables.get(word, ())))

    models = every(ModelTarget, "model")
    for number, model in enumerate(models):
        if any(model.key == other.key for other in models[:number]):
            raise BadInput(f"{name}{_line(text, 'model', number, 'key')}: another model has the key {model.key!r}, too")
    return Spec(every(Job, "job"), every(Device, "device"), every(Estimate, "estimate"), models)


def _made(kind: type[_Made], word: str, number: int, table: Mapping[str, Any], text: str, name: str) -> _Made:
    known = {field.name: field for field in fields(kind)}
    for key in table:
        if key not in known:
            where = _line(text, word, number, key)
            raise BadInput(f"{name}{where}: a {word} has no {key!r}; it has {', '.join(known)}")
    missing = [key for key, field in known.items() if field.default is MISSING and key not in table]
    if missing:
        raise BadInput(f"{name}{_line(text, word, number)}: {word} {number + 1} has no {missing[0]!r}")
    values = {key: _value(key, value, f"{name}{_line(text, word, number, key)}") for key, value in table.items()}
    try:
        return kind(**values)
    except BadInput as error:
        wrong = re.search(r"`(\w+)`", str(error))
        key = wrong[1] if wrong else "links" if "link" in str(error) else ""
        raise BadInput(f"{name}{_line(text, word, number, key)}: {error}") from None


def _value(key: str, value: Any, where: str) -> Any:
    convert = _CONVERTED.get(key)
    return value if convert is None else convert(value, where)


def _batches(value: Any, where: str) -> Any:
    return tuple(value) if isinstance(value, list) else (value,)


def _links(value: Any, where: str) -> tuple[tuple[str, Any], ...]:
    if not isinstance(value, dict):
        raise BadInput(f"{where}: links must be a table of bytes per second by places, got {value!r}")
    return tuple(value.items())


def _interval(value: Any, where: str) -> Interval:
    ends = value if isinstance(value, dict) else {"value": value, "low": value, "high": value}
    numbers = [each for each in ends.values() if isinstance(each, int | float) and not isinstance(each, bool)]
    if set(ends) != {"value", "low", "high"} or len(numbers) != 3:
        raise BadInput(f"{where}: time_us must be a number, or a table of value, low and high, got {value!r}")
    if ends["low"] > ends["high"]:
        raise BadInput(f"{where}: time_us: `low` must be at most `high`, got {ends['low']} and {ends['high']}")
    return Interval(**{end: float(each) for end, each in ends.items()})


_CONVERTED: dict[str, Callable[[Any, str], Any]] = {"batches": _batches, "links": _links, "time_us": _interval}


def _line(text: str, word: str, number: int, key: str = "") -> str:
    """The line of a table's key or heading for an error, or the first line of inline tables; the table's number if none
    is found."""
    seen, found = -1, None
    for place, line in enumerate(text.splitlines(), 1):
        if re.match(rf"\s*\[\[?\s*{re.escape(word)}\s*\]\]?", line):
            seen += 1
            found = place if seen == number else found
        elif re.match(r"\s*\[\[?\s*\w+\s*\]\]?\s*(#.*)?$", line):
            seen = seen if seen < number else number + 1
        elif seen == number and key and re.match(rf"\s*(\[\s*{word}\.)?\"?{re.escape(key)}\"?\s*[]\.=]", line):
            return f", line {place}"
    if found is None:
        start = re.compile(rf"\s*{re.escape(word)}\s*=")
        keys = (place for place, line in enumerate(text.splitlines(), 1) if start.match(line))
        found = next(keys, None)
    return f", table {word} {number + 1}" if found is None else f", line {found}"
