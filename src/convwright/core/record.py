"""Frozen data that converts to strict JSON."""

from __future__ import annotations

from collections.abc import Set
from dataclasses import fields, is_dataclass
from math import isfinite
from typing import Any, ClassVar

_AS_THEY_ARE = frozenset({str, int, bool, type(None)})


class Record:
    """Frozen data that converts to JSON. ``TOLD`` lists properties that come before the fields in a record."""

    __slots__ = ()
    TOLD: ClassVar[tuple[str, ...]] = ()

    def to_json(self) -> dict[str, Any]:
        """All fields as strict JSON. Unknown is None; an infinity is the word for it."""
        record: dict[str, Any] = as_record(self, infinite=str)
        return record


def as_record(data: Any, *, infinite: Any = lambda figure: None) -> Any:
    """``data`` as dicts, lists, strings and numbers. ``infinite`` converts figures that are not finite; by default to
    None.

    >>> from convwright.core.finding import Interval
    >>> as_record(Interval(2.0, 1.5, float("inf"))), Interval(2.0, 1.5, float("inf")).to_json()
    ({'value': 2.0, 'low': 1.5, 'high': None}, {'value': 2.0, 'low': 1.5, 'high': 'inf'})
    """
    kind = type(data)
    if kind in _AS_THEY_ARE:  # the most frequent case
        return data
    names = _names_in(kind)
    if names is not None:
        return {name: as_record(getattr(data, name), infinite=infinite) for name in names}
    if isinstance(data, dict):
        return {name: as_record(value, infinite=infinite) for name, value in data.items()}
    if isinstance(data, Set):
        return sorted(as_record(value, infinite=infinite) for value in data)
    if isinstance(data, list | tuple):
        return [as_record(value, infinite=infinite) for value in data]
    if isinstance(data, str):
        return str(data)  # a member of a StrEnum becomes its word
    return infinite(data) if isinstance(data, float) and not isfinite(data) else data


_names_of: dict[type, tuple[str, ...] | None] = {}


def _names_in(kind: type) -> tuple[str, ...] | None:
    """The names in a dataclass's record; None for any other class."""
    if kind not in _names_of:
        told = getattr(kind, "TOLD", ())
        _names_of[kind] = (*told, *(each.name for each in fields(kind))) if is_dataclass(kind) else None
    return _names_of[kind]
