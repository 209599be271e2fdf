"""What the environment says about how convwright works. Read once, when first needed."""

from __future__ import annotations

import os
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from pathlib import Path

from convwright.errors import BadInput
from convwright.naming import one_of
from convwright.store_url import StoreUrl, is_url


class Mode(StrEnum):
    """How much is done when a problem is met for the first time."""

    OFF = "off"
    HEURISTIC = "heuristic"
    PREDICT = "predict"
    """What a model of the device predicts to be the fastest is chosen, and nothing runs."""
    PREDICT_TOP = "predict-top"
    """Only candidates run that may be the fastest by their predicted intervals, three at most."""
    QUICK = "quick"
    FULL = "full"

    @property
    def measures(self) -> bool:
        """Whether candidates run and are timed."""
        return self in (Mode.PREDICT_TOP, Mode.QUICK, Mode.FULL)


# The time for one problem, where nobody gives another.
BUDGETS_US = {Mode.PREDICT_TOP: 200_000.0, Mode.QUICK: 200_000.0, Mode.FULL: 30e6}


class Trust(StrEnum):
    """What is done about a choice that rests on findings from the store: it is taken, or timed again first."""

    TRUST = "trust"
    VERIFY = "verify"


class Switch(StrEnum):
    """What is on or off."""

    OFF = "0"
    ON = "1"


@dataclass(frozen=True, slots=True)
class Settings:
    """``mode`` at a first meeting, where findings are kept (None: in memory only), how far they are trusted, and
    whether calls are ranges with their candidates' ids in a profiler."""

    mode: Mode = Mode.QUICK
    store_path: Path | StoreUrl | None = None
    trust: Trust = Trust.TRUST
    nvtx: bool = False


@lru_cache
def settings() -> Settings:
    """The settings of this process, from ``CONVWRIGHT_MODE``, ``CONVWRIGHT_STORE`` (a path, a URL, or ``none``),
    ``CONVWRIGHT_TRUST`` (``trust`` or ``verify``) and ``CONVWRIGHT_NVTX`` (``0`` or ``1``); what is empty is not
    set."""
    return Settings(
        one_of(Mode, "CONVWRIGHT_MODE", os.environ.get("CONVWRIGHT_MODE") or "quick"),
        _store_path(),
        one_of(Trust, "CONVWRIGHT_TRUST", os.environ.get("CONVWRIGHT_TRUST") or "trust"),
        one_of(Switch, "CONVWRIGHT_NVTX", os.environ.get("CONVWRIGHT_NVTX") or "0") is Switch.ON,
    )


def path_of(name: str, given: str) -> Path:
    """The path that a user writes, in which ``~`` is a home; ``name`` is what it is written for."""
    if not given:  # which would be the folder that a user is in
        raise BadInput(f"{name} takes a path, got ''")
    if "\0" in given:
        raise BadInput(f"{name} takes a path, got {given!r}, which no file can be called")
    try:
        return Path(given).expanduser()
    except RuntimeError:
        raise BadInput(f"{name} begins with the home of a user who is not known here: {given!r}") from None


def store_place(name: str, given: str) -> Path | StoreUrl | None:
    """The store's file or the URL of its database that a user writes, or None for ``none``, which is memory only."""
    if is_url(given):
        return StoreUrl(given)
    return None if given.lower() == "none" else path_of(name, given)


def _store_path() -> Path | StoreUrl | None:
    given = os.environ.get("CONVWRIGHT_STORE")
    if given:
        return store_place("CONVWRIGHT_STORE", given)
    return default_store()


def default_store() -> Path:
    """The store's file if the environment names none."""
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(cache) / "convwright" / "findings.sqlite"
