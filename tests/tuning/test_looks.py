"""What a first look tells of the time that is counted."""

from __future__ import annotations

from typing import Any

import pytest

from convwright.core.policy import Objective, Policy, Weights
from convwright.tuning.trials.looks import Look

DEVICE = Policy(objective=Objective.DEVICE_TIME)


def look(*runs_us: float, host_us: float = 0.0, packing_us: tuple[float, float] = (0.0, 0.0)) -> Look:
    trial: Any = None
    return Look(trial, runs_us, host_us, packing_us)


@pytest.mark.parametrize(
    ("seen", "policy", "cost_us"),
    [
        (look(9.0, 7.0), Policy(), 7.0),
        (look(7.0, host_us=40.0), Policy(), 40.0),
        (look(7.0, host_us=40.0), DEVICE, 7.0),
        (look(7.0, host_us=9.0, packing_us=(3.0, 25.0)), Policy(), 34.0),
        (look(7.0, host_us=9.0, packing_us=(3.0, 25.0)), DEVICE, 10.0),
        (look(70.0, host_us=9.0, packing_us=(3.0, 25.0)), Policy(), 73.0),
        (look(7.0, host_us=9.0, packing_us=(3.0, 25.0)), Policy(weights=Weights.CONSTANT), 9.0),
    ],
)
def test_what_counts_is_the_slower_of_device_and_host_and_packing_with_them(
    seen: Look, policy: Policy, cost_us: float
) -> None:
    assert seen.cost_us(policy) == cost_us


def test_many_calls_take_as_long_as_the_slower_of_device_and_host() -> None:
    assert look(7.0, host_us=40.0).call_us == 40.0
    assert look(90.0, host_us=40.0).call_us == 90.0
