"""Where there is no memory for a chosen candidate another serves, it is said so, and the candidate comes back."""

from __future__ import annotations

import gc
import threading
import warnings
import weakref
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F
from torch.testing import assert_close

import convwright as cw
from convwright.eager.running import oom_fallback
from convwright.eager.running import workspace as workspaces
from convwright.measuring.hardware.machine import device_facts
from convwright.tuning import listing
from eager.prefer import GEMM, count_calls, prefer, randn
from eager.scarce import Memory, last, operands


def test_pytorchs_own_call_serves_and_the_candidate_is_not_tried_each_time(
    memory: Memory, monkeypatch: pytest.MonkeyPatch
) -> None:
    prefer(monkeypatch, GEMM)
    called, (x, w) = count_calls(monkeypatch), operands()
    expected = F.conv2d(x, w)
    assert_close(cw.conv2d(x, w), expected)
    assert called == ["forward"]
    memory.most = 0
    with pytest.warns(cw.MemoryWarning, match=r"torch/default serves: reference/gemm needs [\d,]+ bytes") as said:
        assert_close([cw.conv2d(x, w) for _ in range(200)], [expected] * 200)
    assert len(said) == 1
    assert called == ["forward"]
    assert memory.refused <= 10
    assert last().candidate.id == "torch/default"
    assert "out of memory" in str(last().note)
    assert "out of memory" in str(last().to_json()["note"])


def test_the_candidate_serves_again_when_memory_is_back(memory: Memory, monkeypatch: pytest.MonkeyPatch) -> None:
    prefer(monkeypatch, GEMM)
    called, (x, w) = count_calls(monkeypatch), operands()
    memory.most = 0
    with pytest.warns(cw.MemoryWarning):
        cw.conv2d(x, w)
    memory.most = 1 << 60
    for _ in range(8):
        assert_close(cw.conv2d(x, w), F.conv2d(x, w))
    assert len(called) >= 5
    assert (last().candidate.id, last().note) == (GEMM, None)


def test_memory_is_looked_at_before_it_is_asked_for(memory: Memory, monkeypatch: pytest.MonkeyPatch) -> None:
    """An attempt that fails makes PyTorch give back what it keeps ready."""
    prefer(monkeypatch, GEMM)
    monkeypatch.setattr(oom_fallback, "free_memory_bytes", lambda device: 1)
    x, w = operands()
    memory.most = 0
    with pytest.warns(cw.MemoryWarning):
        assert len([cw.conv2d(x, w) for _ in range(50)]) == 50
    assert memory.refused == 1


def test_what_is_asked_for_by_name_is_an_error(memory: Memory) -> None:
    x, w = operands()
    cw.conv2d(x, w, algorithm=GEMM)
    memory.most = 0
    for caught in (cw.OutOfMemory, torch.OutOfMemoryError, cw.BackendError):
        with pytest.raises(caught, match=r"^reference/gemm needs [\d,]+ bytes of workspace, and ran out of memory"):
            cw.conv2d(x, w, algorithm=GEMM)
    with cw.algorithms(forward=GEMM), pytest.raises(cw.OutOfMemory):
        cw.conv2d(x, w)
    with cw.algorithms(forward=GEMM, strict=False), pytest.warns(cw.MemoryWarning):
        assert_close(cw.conv2d(x, w), F.conv2d(x, w))
    memory.most = 1 << 60
    assert_close(cw.conv2d(x, w, algorithm=GEMM), F.conv2d(x, w))


def test_on_a_gpu_the_error_names_what_is_free(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(oom_fallback, "free_memory_bytes", lambda device: 1234)
    cw.conv2d(*operands(), algorithm=GEMM)
    gpu = replace(device_facts("cpu"), kind="cuda", torch_name="cuda:1")
    said = str(oom_fallback.short_of(last().candidate, gpu, 5678, torch.OutOfMemoryError("CUDA out of memory.")))
    assert said == (
        "reference/gemm ran out of memory: it needs 5,678 bytes of workspace, and 1,234 bytes are free on cuda:1"
    )


def test_a_plan_without_memory_is_one_error(monkeypatch: pytest.MonkeyPatch) -> None:
    ready = cw.plan("ic4ih9iw8oc6kh3", algorithm=GEMM, device="cpu")
    x, w = (tensor.float() for tensor in (randn(1, 4, 9, 8), randn(6, 4, 3, 3)))

    def short(*_: Any, **__: Any) -> Tensor:
        raise torch.OutOfMemoryError("CUDA out of memory.")

    monkeypatch.setattr(type(ready._plan), "__call__", short)
    with pytest.raises(cw.OutOfMemory, match=rf"needs {ready.workspace_bytes:,} bytes of workspace"):
        ready(x, ready.prepare(w))


def test_every_direction_is_relieved(memory: Memory, monkeypatch: pytest.MonkeyPatch) -> None:
    prefer(monkeypatch, GEMM)
    called = count_calls(monkeypatch)
    x, w = randn(2, 4, 9, 8, grad=True), randn(6, 4, 3, 3, grad=True)
    memory.most = 0
    with pytest.warns(cw.MemoryWarning):
        made = torch.autograd.grad(cw.conv2d(x, w).square().sum(), (x, w))
    expected = torch.autograd.grad(F.conv2d(x, w).square().sum(), (x, w))
    assert_close(made, expected)
    assert called == []


@pytest.mark.parametrize(
    "call",
    [
        lambda x, w: cw.conv2d(x, w, activation="relu"),
        lambda x, w: cw.conv2d(x, w, randn(6)),
        lambda x, w: cw.conv2d(x, w, residual=torch.ones(2, 6, 7, 6, dtype=x.dtype)),
        lambda x, w: cw.conv2d(x, w, out=torch.empty(2, 6, 7, 6, dtype=x.dtype)),
        lambda x, w: cw.conv_transpose2d(x, w.transpose(0, 1).contiguous()),
        lambda x, w: cw.conv2d_into(torch.zeros(2, 8, 7, 6, dtype=x.dtype)[:, 2:], x, w),
    ],
)
def test_every_kind_of_call_is_relieved(
    call: Callable[[Tensor, Tensor], Tensor], memory: Memory, monkeypatch: pytest.MonkeyPatch, told: list[str]
) -> None:
    prefer(monkeypatch, GEMM)
    x, w = operands()
    expected = call(x, w)
    memory.most = 0
    for _ in range(3):
        assert_close(call(x, w), expected)
    assert memory.refused >= 1


def test_what_policy_forbids_does_not_serve(memory: Memory, monkeypatch: pytest.MonkeyPatch) -> None:
    prefer(monkeypatch, GEMM)
    monkeypatch.setattr(
        listing, "objection", lambda candidate, policy: None if candidate.id == GEMM else "is not allowed"
    )
    x, w = operands()
    memory.most = 0
    with pytest.raises(cw.OutOfMemory, match="the policy allows no candidate that needs less"):
        cw.conv2d(x, w)


def test_inside_a_capture_nothing_is_said_and_nothing_is_tried_again(
    memory: Memory, monkeypatch: pytest.MonkeyPatch
) -> None:
    prefer(monkeypatch, GEMM)
    x, w = operands()
    expected = cw.conv2d(x, w)
    memory.most = 0
    with monkeypatch.context() as inside, warnings.catch_warnings():
        warnings.simplefilter("error")
        inside.setattr(oom_fallback, "capturing", lambda device: True)
        for _ in range(5):
            assert_close(cw.conv2d(x, w), expected)
        assert memory.refused == 1
        assert last().candidate.id == "torch/default"
        assert str(last().note).startswith(f"{GEMM} needs")
    memory.most = 1 << 60
    for _ in range(16):
        assert_close(cw.conv2d(x, w), expected)
    assert (last().candidate.id, last().note) == (GEMM, None)


def test_inside_a_capture_nothing_serves_that_policy_forbids(memory: Memory, monkeypatch: pytest.MonkeyPatch) -> None:
    prefer(monkeypatch, GEMM)
    x, w = operands()
    cw.conv2d(x, w)
    memory.most = 0
    monkeypatch.setattr(oom_fallback, "capturing", lambda device: True)
    monkeypatch.setattr(listing, "objection", lambda candidate, policy: "is not allowed")
    with pytest.raises(cw.OutOfMemory, match="the policy allows no candidate that needs less"):
        cw.conv2d(x, w)


def test_other_errors_stay_what_they_are(memory: Memory, monkeypatch: pytest.MonkeyPatch) -> None:
    prefer(monkeypatch, GEMM)
    x, w = operands()
    cw.conv2d(x, w)

    def broken(*_: Any) -> Any:
        raise RuntimeError("the device is gone")

    from convwright.backends.reference.gemm import GemmPlan

    monkeypatch.setattr(GemmPlan, "__call__", broken)
    with pytest.raises(RuntimeError, match=r"^the device is gone$"):
        cw.conv2d(x, w)


def test_nothing_of_a_call_is_kept(memory: Memory, monkeypatch: pytest.MonkeyPatch, told: list[str]) -> None:
    prefer(monkeypatch, GEMM)
    x, w = operands()
    memory.most = 0
    cw.conv2d(x, w)
    gone = weakref.ref(x)
    del x
    gc.collect()
    assert gone() is None


def test_threads_have_memory_of_their_own_on_a_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workspaces, "_held", workspaces._Held())
    give = workspaces.workspace(60, torch.device("cpu"))
    taken = [give()]
    thread = threading.Thread(target=lambda: taken.append(give()))
    thread.start()
    thread.join()
    assert give() is taken[0]
    assert taken[1] is not taken[0]
    assert workspaces.workspace(90, torch.device("cpu"))().numel() == 90
