"""What is said of an engine."""

from __future__ import annotations

import torch
from torch import nn

from convwright.engine.optimize import optimize
from convwright.settings import Mode


def test_each_step_has_a_row_and_the_sums_agree() -> None:
    model = nn.Sequential(nn.Conv2d(4, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2)).eval()
    engine = optimize(model, torch.randn(1, 4, 8, 8), mode=Mode.HEURISTIC)
    text = engine.explain()
    for step in engine.assignment.steps:
        assert any(line.startswith(step.name) for line in text.splitlines())
    assert f"{len(engine.assignment.steps)} steps, 1 of them convolutions" in text
    assert f"{engine.assignment.modelled_us:,.0f} µs" in text
    assert f"arena: {engine.arena_bytes:,} bytes" in text


def test_what_was_not_measured_is_marked_and_nothing_is_copied_in_vain() -> None:
    model = nn.Sequential(nn.Conv2d(4, 8, 3), nn.ReLU()).eval()
    engine = optimize(model, torch.randn(1, 4, 8, 8), mode=Mode.HEURISTIC)
    assert [step.name for step in engine.assignment.steps] == ["0+1"]
    _heading, row, *_ = engine.explain().splitlines()
    assert row.split()[-1] == "≥1.0"
    assert "1 steps, 1 of them convolutions and 0 copies: at least 1 µs" in engine.explain()
    assert "1 of them were not measured" in engine.explain()
