"""Processes that are forked off: only the thread that forks lives on there, and what another held is held forever."""

from __future__ import annotations

import importlib
import os
import threading
import time
from collections.abc import Callable

_PATIENCE_S, _PAUSE_S = 2.0, 0.001


def in_child(then: Callable[[], None]) -> None:
    """Call ``then`` in every process that is forked off from now on, before anything else is done there."""
    if hasattr(os, "register_at_fork"):  # Windows has no fork
        os.register_at_fork(after_in_child=then)


_forks = 0


def forks() -> int:
    """How many forks lie between the first process and this one. What was made before a fork knows by it that it is in
    another process."""
    return _forks


def _count_fork() -> None:
    global _forks
    _forks += 1


in_child(_count_fork)


def wait_for_imports() -> None:
    """Until no other thread is importing anything: a child could never import what one of them was at.

    Python keeps a lock for each module that is being imported, and nobody unlocks it in the child.
    """
    until, here = time.monotonic() + _PATIENCE_S, threading.get_ident()
    while _importing(here) and time.monotonic() < until:
        time.sleep(_PAUSE_S)


def _importing(here: int) -> bool:
    """Whether another thread holds one of these locks, which Python keeps to itself."""
    locks = getattr(getattr(importlib, "_bootstrap", None), "_module_locks", {})
    held = (getattr(lock(), "owner", None) for lock in list(locks.values()))
    return any(owner not in (None, here) for owner in held)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=wait_for_imports)
