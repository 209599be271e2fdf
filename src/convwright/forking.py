"""Processes that are forked off: only the thread that forks lives on there, and what another held is held forever."""

from __future__ import annotations

import os
from collections.abc import Callable


def in_child(then: Callable[[], None]) -> None:
    """Call ``then`` in every process that is forked off from now on, before anything else is done there."""
    if hasattr(os, "register_at_fork"):  # Windows has no fork
        os.register_at_fork(after_in_child=then)
