"""Under autocast a call is remembered with what is cast, and nothing is cast inside of it."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F
from torch.testing import assert_close

import convwright as cw
from convwright.backends.reference.gemm import GemmPlan
from convwright.eager.calls.call import CONV2D
from eager.prefer import GEMM, TORCH, count_calls, prefer, randn


@pytest.mark.parametrize("algorithm", [TORCH, GEMM])
def test_under_autocast_the_original_weight_finds_its_slot(algorithm: str, monkeypatch: pytest.MonkeyPatch) -> None:
    prefer(monkeypatch, algorithm)
    x, w = randn(2, 4, 6, 6, dtype=torch.float32), randn(6, 4, 3, 3, dtype=torch.float32, grad=True)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        expected = F.conv2d(x, w)
        first = cw.conv2d(x, w)
        kept = list(CONV2D.slots.latest)
        monkeypatch.setattr("convwright.eager.slow_path.decide", None)
        for _ in range(3):
            again = cw.conv2d(x, w)
            assert again.dtype is torch.bfloat16
            assert_close(again, expected)
    assert first.dtype is torch.bfloat16
    assert kept == list(CONV2D.slots.latest) == [id(w)]
    again.sum().backward()
    assert w.grad is not None
    assert w.grad.dtype is torch.float32
    monkeypatch.undo()
    assert cw.conv2d(x, w).dtype is torch.float32


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_under_autocast_to_another_dtype_what_was_asked_for_is_asked_for_again(
    dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    called, x, w = count_calls(monkeypatch), randn(2, 4, 6, 6, dtype=dtype), randn(6, 4, 3, 3, dtype=dtype)
    for lowered in (torch.bfloat16, torch.float16, torch.bfloat16):
        with torch.autocast("cpu", dtype=lowered):
            for _ in range(2):
                called.clear()
                y = cw.conv2d(x, w, algorithm=GEMM)
                assert called == ["forward"]
                assert y.dtype is (dtype if dtype is torch.float64 else lowered)
                assert_close(y.float(), F.conv2d(x, w).float(), rtol=0.05, atol=0.05)


def test_behind_a_plan_that_fails_autocast_is_on_as_before(monkeypatch: pytest.MonkeyPatch) -> None:
    prefer(monkeypatch, GEMM)
    x, w = randn(2, 4, 6, 6, dtype=torch.float32), randn(6, 4, 3, 3, dtype=torch.float32)

    def fails(*_: Any) -> Tensor:
        assert not torch.is_autocast_enabled("cpu")
        raise ArithmeticError

    with torch.autocast("cpu", dtype=torch.bfloat16):
        cw.conv2d(x, w)
        monkeypatch.setattr(GemmPlan, "__call__", fails)
        for _ in range(2):
            with pytest.raises(ArithmeticError):
                cw.conv2d(x, w)
            assert torch.is_autocast_enabled("cpu")


def test_under_autocast_a_weight_in_its_dtype_already_keeps_its_calls_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    prefer(monkeypatch, GEMM)
    x, w = randn(2, 4, 8, 8, dtype=torch.bfloat16), randn(6, 4, 3, 3, dtype=torch.bfloat16)
    for stride in (1, 2):
        cw.conv2d(x, w, None, stride)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        for _ in range(2):
            for stride in (1, 2):
                assert_close(cw.conv2d(x, w, None, stride), F.conv2d(x, w, None, stride), rtol=0.05, atol=0.05)
