"""JSON that every parser reads alike: no NaN, no infinity, no key twice.

Everything that this package keeps or prints as JSON is written here. It is read here too, unless another program wrote
it.
"""

from __future__ import annotations

import json
from math import isfinite
from typing import Any


class JsonError(ValueError):
    """A text is not strict JSON. The message says why in a few words."""


def dumps(data: Any, *, indent: int | None = None, compact: bool = False, sort_keys: bool = False) -> str:
    """``data`` as ASCII text. Keys keep their order unless ``sort_keys`` is given.

    >>> dumps({"us": 1.5, "id": "µ"})
    '{"us": 1.5, "id": "\\\\u00b5"}'
    """
    separators = (",", ":") if compact else None
    return json.dumps(data, allow_nan=False, indent=indent, separators=separators, sort_keys=sort_keys)


def in_words(data: Any) -> Any:
    """``data`` with the words "inf", "-inf" and "nan" for the numbers that JSON does not have.

    >>> in_words({"low": float("-inf"), "bounds": (1.0, float("nan"))})
    {'low': '-inf', 'bounds': [1.0, 'nan']}
    """
    if isinstance(data, dict):
        return {name: in_words(value) for name, value in data.items()}
    if isinstance(data, list | tuple):
        return [in_words(value) for value in data]
    return str(data) if isinstance(data, float) and not isfinite(data) else data


def loads(text: str | bytes) -> Any:
    """The data of a text, which is UTF-8 if it is given as bytes; a ``JsonError`` for what is not strict JSON.

    >>> loads('{"us": 1.5}')
    {'us': 1.5}
    >>> loads('{"us": NaN}')
    Traceback (most recent call last):
    convwright.strict_json.JsonError: JSON has no NaN
    """
    try:
        return json.loads(
            text.decode() if isinstance(text, bytes) else text,
            parse_constant=_no_constant,
            parse_float=_finite,
            object_pairs_hook=_without_repeats,
        )
    except JsonError:
        raise
    except json.JSONDecodeError as error:  # whose own words count lines
        raise JsonError(f"{error.msg} at character {error.pos + 1}") from None
    except UnicodeDecodeError as error:
        raise JsonError(
            f"the byte 0x{error.object[error.start]:02x} at character {error.start + 1} is no text in UTF-8"
        ) from None
    except RecursionError:
        raise JsonError("it is nested too deeply") from None
    except ValueError as error:  # a whole number of thousands of digits
        raise JsonError(str(error)) from None


def _no_constant(word: str) -> float:
    raise JsonError(f"JSON has no {word}")


def _finite(digits: str) -> float:
    number = float(digits)
    if not isfinite(number):
        raise JsonError(f"{digits[:40]} is too large for a number")
    return number


def _without_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    record = dict(pairs)
    if len(record) < len(pairs):
        names = [name for name, _ in pairs]
        repeated = next(name for name in names if names.count(name) > 1)
        raise JsonError(f"the key {repeated[:40]!r} is there twice")
    return record
