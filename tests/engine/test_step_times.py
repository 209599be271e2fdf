"""What steps take in their network."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from convwright.engine.optimize import optimize
from convwright.graph.operations import View
from convwright.measuring.hardware.machine import device_facts
from convwright.settings import Mode


def test_each_step_has_a_time_and_what_does_not_run_has_none() -> None:
    layers = nn.Sequential(nn.Conv2d(3, 16, 3, padding=1), nn.ReLU(), nn.Flatten(), nn.Linear(16 * 64 * 64, 10))
    model, x = layers.eval(), torch.randn(2, 3, 64, 64)
    engine = optimize(model, x, mode=Mode.HEURISTIC)
    times_us = engine.step_times([x])
    steps = engine.assignment.steps
    assert len(times_us) == len(steps)
    assert all(0 <= time_us < 1e6 for time_us in times_us)
    runs = [time_us for step, time_us in zip(steps, times_us, strict=True) if not isinstance(step.operation, View)]
    views = [time_us for step, time_us in zip(steps, times_us, strict=True) if isinstance(step.operation, View)]
    assert views
    assert max(views) < max(runs)
    assert sum(times_us) > 1.0


def test_the_assignment_of_an_engine_has_the_times_of_its_steps_in_the_network() -> None:
    model, x = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Conv2d(8, 8, 1)).eval(), torch.randn(1, 3, 32, 32)
    engine = optimize(model, x, store=None)
    assert device_facts("cpu") == engine.facts
    assert all(each.time_us.low == each.time_us.high for each in engine.assignment.steps)
    assert engine.assignment.steps_us == pytest.approx(sum(each.time_us.value for each in engine.assignment.steps))
    assert 0 < engine.assignment.modelled_us < 1e6
