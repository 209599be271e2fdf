"""The times of PyTorch's operators are measured once for each device, version and setting of PyTorch."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import nn
from torch.testing import assert_close

from convwright.core.dtype import DType
from convwright.core.finding import Interval
from convwright.core.policy import Policy
from convwright.core.tensor_spec import Layout, TensorSpec
from convwright.engine.export.foreign import concatenation
from convwright.engine.optimize import optimize
from convwright.engine.planning import searched_times
from convwright.engine.planning.searched_times import SearchedTimes
from convwright.graph.operations import Foreign
from convwright.measuring.hardware.machine import device_facts
from convwright.measuring.timing import Timing
from convwright.settings import Mode
from convwright.store.store import Store

CPU = device_facts("cpu")


def joined(channels: int = 4, layout: Layout = Layout.NCHW, dtype: DType = DType.FP32) -> Foreign:
    part, whole = (TensorSpec((1, each, 6, 6), dtype).dense(layout) for each in (channels, 2 * channels))
    return concatenation([part, part], whole, 1)


class Measured:
    """Counts measurements. The first takes 1 µs, the second 2 µs, and so on."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.times, self.disturbed, self.store = 0, False, Store.open(None)
        monkeypatch.setattr(searched_times, "measure", self._measure)

    def _measure(self, call: Any, **options: Any) -> Timing:
        self.times += 1
        call()
        taken = Interval(*(self.times * each for each in (1.0, 0.9, 1.1)))
        return Timing(taken, None, 9, (taken.value,) * 9, None, 1, disturbed=self.disturbed)

    def of(self, operation: Foreign) -> float:
        time_us = SearchedTimes(CPU, Policy(), Mode.QUICK, self.store).of_operator(operation)
        assert time_us is not None
        return time_us.value


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch) -> Measured:
    return Measured(monkeypatch)


def test_an_operator_is_timed_once(measured: Measured) -> None:
    assert [measured.of(joined()), measured.of(joined())] == [1.0, 1.0]
    assert measured.times == 1


@pytest.mark.parametrize("other", [joined(8), joined(layout=Layout.NHWC), joined(dtype=DType.BF16),
                                   replace(joined(), target="aten.concat.default")])  # fmt: skip
def test_another_operator_is_timed_anew(measured: Measured, other: Foreign) -> None:
    assert [measured.of(joined()), measured.of(other), measured.of(joined()), measured.of(other)] == [1.0, 2.0] * 2


def test_other_versions_and_flags_are_timed_anew(measured: Measured, monkeypatch: pytest.MonkeyPatch) -> None:
    measured.of(joined())
    with torch.backends.mkldnn.flags(enabled=False):
        assert measured.of(joined()) == 2.0
    monkeypatch.setattr(searched_times.flags, "matmul_tf32_allowed", lambda: True)
    assert measured.of(joined()) == 3.0


@pytest.mark.parametrize("damaged", ["", "[]", "{}", "1", '{"value": 1}', '{"value": 2, "low": 3, "high": 1}',
                                     '{"value": "a", "low": 1, "high": 1}', '{"value": 0, "low": 0, "high": 0}',
                                     '{"value": null, "low": 1, "high": 1}'])  # fmt: skip
def test_a_damaged_time_is_measured_again(measured: Measured, damaged: str) -> None:
    measured.of(joined())
    edit = "UPDATE fact SET body = ? WHERE name LIKE 'time of aten.cat.default %'"
    assert measured.store.transaction(lambda connection: connection.execute(edit, (damaged,)).rowcount) == 1
    assert [measured.of(joined()), measured.of(joined())] == [2.0, 2.0]


def test_a_time_that_other_work_disturbed_is_not_kept(measured: Measured) -> None:
    measured.disturbed = True
    assert [measured.of(joined()), measured.of(joined())] == [1.0, 2.0]


class Whitened(nn.Module):
    """Factors a matrix that must be positive definite."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(4, 4, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.conv(x).flatten(2)
        return torch.linalg.cholesky(y @ y.mT + torch.eye(4))


def test_an_operator_that_takes_only_some_matrices_is_planned() -> None:
    model, x = Whitened().eval(), torch.randn(2, 4, 8, 8, generator=torch.Generator().manual_seed(1))
    engine = optimize(model, x)
    assert_close(engine(x), model(x), rtol=1e-4, atol=1e-4)
    assert any(step.name.startswith("linalg_cholesky") for step in engine.assignment.steps)
