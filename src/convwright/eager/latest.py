"""The latest choice of this process, for `last_choice`. It is updated when a call is decided, and when a candidate
runs out of memory and another replaces it."""

from __future__ import annotations

from convwright.tuning.session import Choice


class _Latest:
    choice: Choice | None = None


latest = _Latest()
