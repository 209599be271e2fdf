"""Data as strict JSON."""

from __future__ import annotations

from typing import Any

from convwright import strict_json


def as_json(data: Any) -> str:
    """``data`` as JSON that any parser reads. JSON has no infinity and no NaN, so these become words.

    >>> print(as_json({"scaled_max": float("inf"), "relative_l2": 1e-7}))
    {
     "scaled_max": "inf",
     "relative_l2": 1e-07
    }
    """
    return strict_json.dumps(strict_json.in_words(data), indent=1)
