"""An unseen problem on a GPU: no call waits for a compiler, and a later one runs what was compiled for it."""

from __future__ import annotations

import threading
import time
from functools import lru_cache

import pytest
import torch
from torch.nn import functional as F
from torch.testing import assert_close

from convwright.core.policy import Policy
from convwright.core.problem import ConvProblem
from convwright.measuring.hardware.machine import device_facts
from convwright.settings import Mode
from convwright.store.store import Store
from convwright.tuning import session as sessions
from convwright.tuning.compile_queue import compile_queue
from convwright.tuning.find import find
from convwright.tuning.session import Session

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device, PyTorch sees none")

BUDGET_US = 200_000.0


def problem(channels: int) -> ConvProblem:
    """One that no other test asks for, so that its kernels are not compiled yet."""
    return ConvProblem.parse(f"mb3ic{channels}ih21oc{channels}kh3ph1 dt:fp16 tag:nhwc ep:bias+relu")


def test_what_has_to_be_compiled_is_tried_at_a_later_call() -> None:
    device, ready, store = device_facts("cuda:0"), threading.Event(), Store.open(None)
    asked = problem(72)

    def search(asked: ConvProblem) -> tuple[dict[str, str], float]:
        begun_s = time.perf_counter()
        found = find(asked, device, Policy(), mode=Mode.QUICK, store=store, budget_us=BUDGET_US, then=ready.set)
        rows = {verdict.finding.candidate.id: verdict.reason for verdict in found.verdicts}
        return rows, (time.perf_counter() - begun_s) * 1e6

    search(problem(64))  # what a process does once
    rows, spent_us = search(asked)
    waiting = {id_ for id_, reason in rows.items() if "is being compiled in the background" in reason}
    assert 1 <= len(waiting) <= 4
    assert spent_us < 1.5 * BUDGET_US
    assert ready.wait(60)
    compile_queue().wait_for_all()
    rows, spent_us = search(asked)
    assert not any("is being compiled" in reason for reason in rows.values())
    assert not any("failed" in rows[id_] for id_ in waiting)
    assert any("not tried" not in rows[id_] for id_ in waiting)
    assert spent_us < 1.5 * BUDGET_US


def test_a_layer_is_decided_anew_and_stays_right(monkeypatch: pytest.MonkeyPatch) -> None:
    import convwright as cw

    made = Session(Mode.QUICK, Store.open(None))
    news = threading.Event()
    sessions.when_news(news.set)
    for module in ("convwright.eager.decision", "convwright.eager.scheduler", "convwright.tuning.session"):
        monkeypatch.setattr(f"{module}.session", lru_cache(lambda: made))
    x = torch.randn(3, 88, 21, 21, device="cuda", dtype=torch.float16).to(memory_format=torch.channels_last)
    w = torch.randn(88, 88, 3, 3, device="cuda", dtype=torch.float16).to(memory_format=torch.channels_last)
    exact = F.conv2d(x.double(), w.double(), padding=1)
    for _ in range(3):
        assert_close(cw.conv2d(x, w, padding=1).double(), exact, rtol=1e-2, atol=1e-1)
    assert news.wait(60)
    for _ in range(3):
        assert_close(cw.conv2d(x, w, padding=1).double(), exact, rtol=1e-2, atol=1e-1)
    assert cw.last_choice() is not None


def test_searches_leave_the_memory_as_it_was() -> None:
    """cuBLAS keeps 32 MiB for each stream on which it ran."""
    device, store, held = device_facts("cuda:0"), Store.open(None), []
    for channels in (40, 48, 56):
        asked = ConvProblem.parse(f"mb4ic{channels}ih28oc{channels}kh1 dt:fp16 tag:nhwc")
        find(asked, device, Policy(), mode=Mode.QUICK, store=store, budget_us=BUDGET_US)
        held.append(torch.cuda.memory_allocated())
    assert max(held[1:]) <= held[0] + (1 << 20)
