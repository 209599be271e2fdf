"""Choices that serve eager calls on a GPU, before, inside and after a capture."""

from __future__ import annotations

from functools import lru_cache

import pytest
import torch
from convwright.ops.deciding.host_costs import host_costs
from torch.nn import functional as F
from torch.testing import assert_close

import convwright as cw
from convwright.measuring.company import Company
from convwright.ops.calls.form import forget
from convwright.settings import Mode
from convwright.tuning.keeping.store import Store
from convwright.tuning.session import Session

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device, PyTorch sees none")


def test_finding_a_choice_costs_the_host_less_than_a_convolution() -> None:
    costs = host_costs("cuda")
    assert 0.2 < costs.look_us < costs.own_us < 1000
    assert 0.2 < costs.bias_us < 300


def test_company_is_the_hosts() -> None:
    company = Company("cuda")
    company()
    torch.cuda.synchronize()
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        company()
    start.record()  # type: ignore[no-untyped-call]
    graph.replay()
    end.record()  # type: ignore[no-untyped-call]
    torch.cuda.synchronize()
    assert start.elapsed_time(end) < 0.1  # type: ignore[no-untyped-call]


@pytest.mark.parametrize("calls_before", [3, 60])
def test_what_is_captured_before_or_after_is_right(calls_before: int, monkeypatch: pytest.MonkeyPatch) -> None:
    made = Session(Mode.QUICK, Store.open(None))
    for module in ("convwright.ops.deciding.decide", "convwright.ops.deciding.meetings", "convwright.tuning.session"):
        monkeypatch.setattr(f"{module}.session", lru_cache(lambda: made))
    forget()
    x = torch.randn(3, 88, 21, 21, device="cuda", dtype=torch.float16).to(memory_format=torch.channels_last)
    w = torch.randn(88, 88, 3, 3, device="cuda", dtype=torch.float16).to(memory_format=torch.channels_last)
    bias = torch.randn(88, device="cuda", dtype=torch.float16)
    exact = F.conv2d(x.double(), w.double(), bias.double(), padding=1).relu()
    with torch.no_grad():
        for _ in range(calls_before):
            y = cw.conv2d(x, w, bias, padding=1, activation="relu")
            torch.cuda.synchronize()
        assert_close(y.double(), exact, rtol=1e-2, atol=1e-1)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            y = cw.conv2d(x, w, bias, padding=1, activation="relu")
    y.zero_()
    graph.replay()
    assert_close(y.double(), exact, rtol=1e-2, atol=1e-1)
