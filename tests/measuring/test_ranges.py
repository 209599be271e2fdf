"""Ranges in a profiler's timeline: there with the setting, and not a single object in a call's way without it."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch.cuda import nvtx
from torch.profiler import ProfilerActivity, profile

import convwright as cw
from convwright.errors import BadInput
from convwright.measuring import ranges
from convwright.measuring.hardware.machine import device_facts
from convwright.measuring.ranges import Ranged, without_range
from convwright.settings import settings
from convwright.tuning.session import Choice, named, session

X, W = torch.randn(1, 4, 8, 8), torch.randn(4, 4, 3, 3)


def choice(algorithm: str) -> Choice:
    problem, device = cw.ConvProblem.parse("ic4ih8oc4kh3"), device_facts("cpu")
    return Choice(named(algorithm, problem, device, cw.Policy()), device)


def names_seen(algorithm: str) -> set[str]:
    with profile(activities=[ProfilerActivity.CPU]) as seen:
        y = cw.conv2d(X, W, algorithm=algorithm)
    assert torch.allclose(y, F.conv2d(X, W), atol=1e-4)
    return {event.key for event in seen.key_averages()}


@pytest.fixture
def _ranges(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CONVWRIGHT_NVTX", "1")
    settings.cache_clear()


@pytest.mark.usefixtures("_ranges")
@pytest.mark.parametrize("algorithm", ["reference/gemm", "relayout(nhwc, reference/gemm)"])
def test_a_call_is_a_range_with_its_candidates_id(algorithm: str) -> None:
    assert algorithm in names_seen(algorithm)
    assert algorithm in names_seen(algorithm)  # as the slot of an earlier call runs it


@pytest.mark.usefixtures("_ranges")
def test_pytorchs_own_function_is_called_as_it_is() -> None:
    assert names_seen("torch/default") >= {"aten::conv2d"}


def test_without_the_setting_the_plan_itself_runs() -> None:
    plan = choice("reference/gemm").plan()
    assert not isinstance(plan, Ranged)
    assert without_range(plan) is plan
    assert "reference/gemm" not in names_seen("reference/gemm")


@pytest.mark.usefixtures("_ranges")
def test_a_plan_is_wrapped_once_and_says_of_itself_what_it_said() -> None:
    plan = choice("reference/gemm").plan()
    assert isinstance(plan, Ranged)
    assert choice("reference/gemm").plan() is plan
    inner = without_range(plan)
    assert not isinstance(inner, Ranged)
    for name in ("candidate", "workspace_bytes", "writes_out"):
        assert getattr(plan, name) == getattr(inner, name)
    assert plan.prepare(W).shape == inner.prepare(W).shape
    with pytest.raises(AttributeError, match="nonsense"):
        _ = plan.nonsense
    assert session().mode == "heuristic"


@pytest.mark.usefixtures("_ranges")
def test_nvtx_is_pushed_and_popped_where_it_is_built_in(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[str] = []
    monkeypatch.setattr(ranges, "_built_with_cuda", lambda: True)
    monkeypatch.setattr(nvtx, "range_push", told.append)
    monkeypatch.setattr(nvtx, "range_pop", lambda: told.append("end"))
    ranged = Ranged(without_range(choice("reference/gemm").plan()))
    scratch = torch.empty(ranged.workspace_bytes, dtype=torch.uint8)
    ranged(X, ranged.prepare(W), workspace=scratch)
    assert told == ["reference/gemm", "end"]
    with pytest.raises(Exception):  # noqa: B017, PT011 - whatever the plan raises
        ranged(X, torch.randn(2, 2), workspace=scratch)
    assert told[2:] == ["reference/gemm", "end"]


@pytest.mark.parametrize("value", ["yes", " ", "2"])
def test_the_setting_is_0_or_1(value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CONVWRIGHT_NVTX", value)
    settings.cache_clear()
    with pytest.raises(BadInput, match=f"CONVWRIGHT_NVTX must be one of 0, 1, got '{value}'"):
        settings()
