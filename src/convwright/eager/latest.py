"""The latest choice of this process: what `last_choice` gives. Noted where a call is decided, and where one runs out of
memory and another candidate serves."""

from __future__ import annotations

from convwright.tuning.session import Choice


class _Latest:
    choice: Choice | None = None


latest = _Latest()
