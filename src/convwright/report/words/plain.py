"""Data as strict JSON has it."""

from __future__ import annotations

import json
from math import isfinite
from typing import Any


def as_json(data: Any) -> str:
    """``data`` as JSON that any parser reads: JSON has no infinities and NaNs, so these become the words for them.

    >>> print(as_json({"scaled_max": float("inf"), "relative_l2": 1e-7}))
    {
     "scaled_max": "inf",
     "relative_l2": 1e-07
    }
    """
    return json.dumps(_plain(data), indent=1, allow_nan=False)


def _plain(data: Any) -> Any:
    if isinstance(data, dict):
        return {name: _plain(value) for name, value in data.items()}
    if isinstance(data, list | tuple):
        return [_plain(value) for value in data]
    return str(data) if isinstance(data, float) and not isfinite(data) else data
