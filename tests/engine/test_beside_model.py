"""A call of an engine beside one of its model."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

import convwright as cw
from convwright.core.finding import Interval
from convwright.engine.beside_model import beside_model
from convwright.engine.engine import Engine
from convwright.engine.inspecting.explained import explained
from convwright.measuring.compare import Outcome
from convwright.measuring.paired import Paired

X = torch.ones(1, 3, 16, 16)
SLOW = Paired(
    Interval(100.0, 99.0, 101.0), Interval(200.0, 199.0, 201.0), Interval(2.0, 1.9, 2.1), Outcome.SLOW, 21, None
)


class Counting(nn.Module):
    """A model that changes a buffer at each call and takes milliseconds."""

    def __init__(self) -> None:
        super().__init__()
        self.convolution = nn.Conv2d(3, 8, 3)
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, x: Tensor) -> Tensor:
        if not torch.compiler.is_exporting():
            for _ in range(50):
                self.calls += x.sum() * 0 + 1
        return self.convolution(x).relu()


def engine_of(model: nn.Module) -> Engine:
    return cw.optimize(model.eval(), X, mode="heuristic")


def test_the_slower_of_both_is_found_and_the_model_stays_as_it_was() -> None:
    model = Counting()
    engine = engine_of(model)
    found = beside_model(engine, model, (X,))
    assert isinstance(found, str) or found.unstable is not None or found.before_us.value > found.after_us.value > 0
    assert model.calls == 0


def test_explain_says_why_a_model_is_not_compared(tmp_path: Path) -> None:
    class Failing(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            raise RuntimeError("no memory")

    engine = engine_of(nn.Conv2d(3, 8, 3))
    why = beside_model(engine, Failing(), (X,))
    assert why == "no memory"
    engine.assignment = replace(engine.assignment, beside_model=why)
    engine.save(tmp_path)
    assert "the engine could not be compared with its model: no memory" in cw.load(tmp_path).explain()


def test_explain_says_it_and_a_folder_keeps_it(tmp_path: Path) -> None:
    engine = engine_of(nn.Conv2d(3, 8, 3))
    assert "a call takes" not in engine.explain(), "mode heuristic measures nothing"
    engine.assignment = replace(engine.assignment, beside_model=SLOW)
    line = "a call takes 200 µs, one of the model 100 µs: 0.50x as fast (0.48 to 0.53, 21 rounds side by side)"
    assert f"{line}; the engine is slower: keep the model, or plan it again" in engine.explain()
    engine.save(tmp_path / "engine")
    assert line in cw.load(tmp_path / "engine").explain()
    assert "a call takes" not in engine.pin(engine.assignment.steps[0].name).explain()


@pytest.mark.parametrize(("outcome", "ratio", "unstable", "ends"), [
    (Outcome.FAST, Interval(0.5, 0.4, 0.6), None, ": 2.00x as fast (1.67 to 2.50, 21 rounds side by side)"),
    (Outcome.AMBIGUOUS, Interval(1.0, 0.8, 1.25), None, ": no difference can be shown (0.80x to 1.25x as fast, "
     "21 rounds side by side)"),
    (Outcome.AMBIGUOUS, Interval(1.0, 0.9, 1.1), "other work ran", "the times are uncertain: other work ran"),
])  # fmt: skip
def test_other_outcomes(outcome: Outcome, ratio: Interval, unstable: str | None, ends: str) -> None:
    engine = engine_of(nn.Conv2d(3, 8, 3))
    pair = replace(SLOW, outcome=outcome, ratio=ratio, unstable=unstable)
    lines = explained(replace(engine.assignment, beside_model=pair), engine.facts, engine.memory_plan).splitlines()
    (line,) = (line for line in lines if line.startswith("a call takes"))
    assert line.endswith(ends)


def test_optimize_measures_it() -> None:
    engine = cw.optimize(nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU()).eval(), X)
    pair = engine.assignment.beside_model
    assert isinstance(pair, str) or (pair is not None and pair.rounds > 1)
    assert ("a call takes" in engine.explain()) == isinstance(pair, Paired)
