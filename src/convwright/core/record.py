"""Frozen data that converts to strict JSON."""

from __future__ import annotations

from collections.abc import Set
from dataclasses import fields, is_dataclass
from math import isfinite
from typing import Any, ClassVar

_AS_THEY_ARE = frozenset({str, int, bool, type(None)})


class Record:
    """Frozen data that converts to JSON. ``_PROPERTIES`` names properties that a record has before the fields."""

    __slots__ = ()
    _PROPERTIES: ClassVar[tuple[str, ...]] = ()

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
        is_data = is_dataclass(kind)
        _names_of[kind] = (*property_names(kind), *(each.name for each in fields(kind))) if is_data else None
    return _names_of[kind]


def property_names(kind: type) -> tuple[str, ...]:
    """The properties in a dataclass's record."""
    names: tuple[str, ...] = getattr(kind, "_PROPERTIES", ())
    return names
