"""What a generated page says of the conditions under which its record was taken."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

_WHERE = ("driver", "cuda", "cudnn", "torch", "triton", "python", "system")


def taken(lines: Sequence[Mapping[str, Any]]) -> str:
    """On what and with which versions, by the first line; and on which days."""
    known = lines[0]["conditions"]
    where = [known["device"], *(f"{word} {known[word]}" for word in _WHERE if word in known)]
    return ", ".join([*where, *sorted({line["date"][:10] for line in lines})])
