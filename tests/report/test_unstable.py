"""What other work disturbed is said below every table of searches, with the causes and the cure, and is not kept."""

from __future__ import annotations

from collections.abc import Callable
from io import StringIO

import pytest
import torch
from rich.console import Console

from convwright.network.advise import advise
from convwright.network.tuned import tune
from convwright.report.advice import print_advice
from convwright.report.table import print_findings
from convwright.report.tuned import print_tuned
from convwright.report.unstable import unstable_lines
from convwright.settings import Mode
from convwright.tuning.keeping.store import Store

X = torch.randn(1, 2, 8, 8)
WHY = "unstable: 2 rounds, and others had the cores: stop other work on the machine"


@pytest.fixture(autouse=True)
def _disturbed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("convwright.tuning.trials.heats.doubt", lambda timing, look_us: WHY)
    monkeypatch.setattr("convwright.network.advise._MODEL_BUDGET_US", {Mode.QUICK: 20_000.0})
    monkeypatch.setattr("convwright.network.advise._WHATIF_BUDGET_US", {Mode.QUICK: 20_000.0})


def printed(show: Callable[[Console], object]) -> list[str]:
    out = StringIO()
    show(Console(file=out, width=300))
    return out.getvalue().splitlines()


def test_below_the_tables_of_find_and_tune() -> None:
    store = Store.open(None)
    tuned = tune(torch.nn.Conv2d(2, 4, 3), X, mode="quick", budget_us=20_000.0, store=store)
    (problem,) = tuned.problems
    lines = printed(lambda console: print_findings(problem.findings, console))
    assert any(line.startswith("unstable: torch/default") and line.endswith(WHY[10:]) for line in lines)
    assert f"unstable: Conv2d: {WHY[10:]}" in printed(lambda console: print_tuned(tuned, console))
    assert problem.findings.to_json()["unstable"] == WHY
    assert store.summary().devices == (), "nothing is kept"


def test_in_advice() -> None:
    advice = advise(torch.nn.Conv2d(2, 4, 3), X, mode="quick", store=Store.open(None))
    assert f"Conv2d: {WHY}." in str(advice).splitlines()
    assert f"Conv2d: {WHY}." in printed(lambda console: print_advice(advice, console))
    assert advice.to_json()["layers"][0]["unstable"] == WHY


def test_many_are_no_wall_of_text() -> None:
    lines = unstable_lines((f"row {index}", f"unstable: {index} rounds: wait") for index in range(9))
    assert len(lines) == 7
    assert lines[-1] == "unstable: and 3 more"
