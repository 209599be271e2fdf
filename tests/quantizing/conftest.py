"""The network that most tests quantise."""

from __future__ import annotations

import pytest
import torch

from convwright.quantizing import run_times
from quantizing.nets import Net, trained


@pytest.fixture(autouse=True)
def _timed_briefly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_times, "BUDGET_US", 20_000.0)


@pytest.fixture
def net() -> Net:
    torch.manual_seed(3)
    made: Net = trained(Net())
    return made
