"""The text form of measurements in the store.

It is JSON with ``Infinity`` and ``NaN``, which all versions of the store use; so ``strict_json`` cannot write it.
"""

from __future__ import annotations

import json
from typing import Any

from convwright.core.finding import Measurement


def measurement_text(measurement: Measurement) -> str:
    return json.dumps(measurement.to_json())


def record_of(text: str) -> Any:
    """The record in a text, which somebody may have edited."""
    return json.loads(text)
