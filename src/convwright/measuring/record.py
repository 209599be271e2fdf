"""Results as records: what strict JSON can hold."""

from __future__ import annotations

from dataclasses import fields, is_dataclass
from math import isfinite
from typing import Any


def as_record(data: Any) -> Any:
    """``data`` as dicts, lists, strings and numbers. A figure that is not finite is not known, so it is None.

    >>> from convwright.core.finding import Interval
    >>> as_record(Interval(2.0, 1.5, float("inf")))
    {'value': 2.0, 'low': 1.5, 'high': None}
    """
    if is_dataclass(data):
        return {field.name: as_record(getattr(data, field.name)) for field in fields(data)}
    if isinstance(data, dict):
        return {name: as_record(value) for name, value in data.items()}
    if isinstance(data, list | tuple):
        return [as_record(value) for value in data]
    if isinstance(data, str):
        return str(data)  # A member of a StrEnum becomes the word for it.
    return None if isinstance(data, float) and not isfinite(data) else data
