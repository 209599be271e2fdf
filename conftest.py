"""For tests and doctests alike: those that cannot be imported on this machine are left out, and the others are told of
no other work on it."""

from __future__ import annotations

from importlib.util import find_spec
from math import inf

import pytest

collect_ignore_glob = [] if find_spec("triton") else ["src/convwright/backends/triton/*/kernel.py"]
if find_spec("nvidia") is None:  # and so no cuDNN, whose planner these ask
    collect_ignore_glob += ["src/convwright/emit/one.py", "src/convwright/emit/any_sizes.py", "docs/emit-c.md"]


@pytest.fixture(autouse=True)
def _quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a search keeps would depend on who else is at work; tests of that make their own other work."""
    monkeypatch.setattr("convwright.tuning.trials.side_by_side.doubt", lambda timing, look_us: None)
    monkeypatch.setattr("convwright.tuning.trials.quick_timing.MOST_WAITING", inf)
