"""Examples on these pages run as tests; those of the reference are run where they stand, in the source."""

from __future__ import annotations

import os

import pytest

from convwright.settings import BUDGETS_US, Mode

# No example reads or writes a user's store.
os.environ["CONVWRIGHT_STORE"] = "none"

collect_ignore = ["reference"]


@pytest.fixture(autouse=True)
def _briefly(monkeypatch: pytest.MonkeyPatch) -> None:
    """Examples measure for a shorter time than for a user: the pages show no time."""
    monkeypatch.setitem(BUDGETS_US, Mode.QUICK, 20_000.0)
    monkeypatch.setattr("convwright.engine.running.step_times._LONGEST_S", 0.02)
    monkeypatch.setattr("convwright.engine.beside_model._BUDGET_US", 50_000.0)
