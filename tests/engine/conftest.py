"""Brief measurements, which make the tests of engines quick."""

from __future__ import annotations

import pytest

from convwright.engine import beside_model
from convwright.engine.running import step_times
from convwright.settings import BUDGETS_US, Mode


@pytest.fixture(autouse=True)
def _briefly(monkeypatch: pytest.MonkeyPatch) -> None:
    """No test here says how fast a network is."""
    monkeypatch.setitem(BUDGETS_US, Mode.QUICK, 20_000.0)
    monkeypatch.setattr(step_times, "_LONGEST_S", 0.03)
    monkeypatch.setattr(beside_model, "_BUDGET_US", 100_000.0)
