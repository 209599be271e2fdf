"""Ranges with candidates' ids, on a live GPU: NVTX takes them, and PyTorch's profiler shows them."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch.profiler import ProfilerActivity, profile

import convwright as cw
from convwright.settings import settings

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device, PyTorch sees none"),
]


def test_a_call_is_a_range_with_its_candidates_id(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CONVWRIGHT_NVTX", "1")
    settings.cache_clear()
    x, w = torch.randn(2, 8, 16, 16, device="cuda"), torch.randn(8, 8, 3, 3, device="cuda")
    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as seen:
        y = cw.conv2d(x, w, padding=1, algorithm="cudnn/gemm")
    assert "cudnn/gemm" in {event.key for event in seen.key_averages()}
    torch.testing.assert_close(y.double(), F.conv2d(x.double(), w.double(), padding=1), atol=1e-4, rtol=1e-4)
