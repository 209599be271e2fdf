"""Choices prove themselves on a GPU: by the host's time where the device waits, by its own where it is behind."""

from __future__ import annotations

from functools import lru_cache

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F
from torch.testing import assert_close

import convwright as cw
from convwright.ops.form import CONV2D, forget
from convwright.ops.seasons import Seasonal, Seasons, is_behind
from convwright.settings import Mode
from convwright.tuning.session import Session
from convwright.tuning.store import Store

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device, PyTorch sees none")

_TEN_MS = 20_000_000  # cycles


def test_a_stream_tells_whether_it_is_behind() -> None:
    device = torch.device("cuda:0")
    torch.cuda.synchronize()
    assert not is_behind(device)
    torch.cuda._sleep(_TEN_MS)
    assert is_behind(device)
    with torch.cuda.stream(torch.cuda.Stream()):
        assert not is_behind(device)
    torch.cuda.synchronize()


@pytest.mark.parametrize(("behind", "gain_us"), [(True, 5.0), (False, 0.0)])
def test_a_slow_host_is_no_matter_where_the_device_is_behind(behind: bool, gain_us: float) -> None:
    x, w = torch.randn(2, 8, 9, 9, device="cuda"), torch.randn(4, 8, 3, 3, device="cuda")

    def slow(*operands: Tensor | None) -> Tensor:
        for _ in range(20):
            y = F.conv2d(x, w)
        return y

    trial = Seasonal(slow, lambda *operands: F.conv2d(x, w), Seasons(), x.device, 5.0)
    torch.cuda.synchronize()
    for _ in range(40 if behind else 4000):
        if behind:
            torch.cuda._sleep(_TEN_MS)
        trial(x, w)
        if not behind:
            torch.cuda.synchronize()
    torch.cuda.synchronize()
    assert trial.gain_us == gain_us


@pytest.mark.parametrize("calls_before", [3, 10_000])
def test_what_is_captured_before_or_after_is_right(calls_before: int, monkeypatch: pytest.MonkeyPatch) -> None:
    made = Session(Mode.QUICK, Store.open(None))
    for module in ("convwright.ops.decide", "convwright.ops.meetings", "convwright.tuning.session"):
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
    if calls_before > 30:
        slots = [slot for each in CONV2D.slots._by_shape.values() for slot in each]
        assert not any(isinstance(slot.run, Seasonal) for slot in slots)
