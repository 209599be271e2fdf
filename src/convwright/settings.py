"""What the environment says about how convwright works. Read once, when first needed."""

from __future__ import annotations

import os
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from pathlib import Path

from convwright.naming import one_of

QUICK_BUDGET_US = 200_000.0


class Mode(StrEnum):
    """How much is done when a problem is met for the first time."""

    OFF = "off"
    HEURISTIC = "heuristic"
    QUICK = "quick"
    FULL = "full"


@dataclass(frozen=True, slots=True)
class Settings:
    """``mode`` at a first meeting, and where findings are kept (None: in memory only)."""

    mode: Mode = Mode.QUICK
    store_path: Path | None = None


@lru_cache
def settings() -> Settings:
    """The settings of this process, from ``CONVWRIGHT_MODE`` and ``CONVWRIGHT_STORE`` (a path, or ``none``)."""
    return Settings(one_of(Mode, "CONVWRIGHT_MODE", os.environ.get("CONVWRIGHT_MODE", "quick")), _store_path())


def _store_path() -> Path | None:
    given = os.environ.get("CONVWRIGHT_STORE")
    if given == "none":
        return None
    if given:
        return Path(given)
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(cache) / "convwright" / "findings.sqlite"
