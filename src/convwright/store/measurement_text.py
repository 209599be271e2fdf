"""A measurement as the text that the store keeps.

It is JSON but for infinities and NaNs, which stand in it as ``Infinity`` and ``NaN``. Stores of all versions keep them
so; therefore this text is not written by ``strict_json``.
"""

from __future__ import annotations

import json
from typing import Any

from convwright.core.finding import Measurement


def measurement_text(measurement: Measurement) -> str:
    return json.dumps(measurement.to_json())


def record_of(text: str) -> Any:
    """What a text holds, which someone may have changed by hand."""
    return json.loads(text)
