"""Rows of data as comma-separated values."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from typing import Any


def csv_text(rows: Sequence[Mapping[str, Any]]) -> str:
    """A heading and a line for each row, without a last newline. An unknown value is empty.

    >>> print(csv_text([{"id": "a/b[x=1,y=2]", "time_us": 1.5, "error": None}]))
    id,time_us,error
    "a/b[x=1,y=2]",1.5,
    """
    if not rows:
        return ""
    out = io.StringIO()
    writer = csv.DictWriter(out, list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return out.getvalue().removesuffix("\n")
