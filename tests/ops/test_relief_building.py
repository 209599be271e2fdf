"""Where there is no memory to build a chosen candidate another serves, until there is."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
import torch
from torch.nn import functional as F
from torch.testing import assert_close

import convwright as cw
from convwright.measuring.hardware.machine import device_facts
from convwright.ops.running import relief as reliefs
from convwright.tuning.session import Session
from ops.prefer import GEMM, count_calls, prefer, randn
from ops.scarce import WINOGRAD, Builder, Known, Memory, last, operands


def test_a_candidate_that_cannot_be_built_for_want_of_memory_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    prefer(monkeypatch, GEMM)
    called, (x, w), builder = count_calls(monkeypatch), operands(), Builder(monkeypatch, GEMM)
    expected = F.conv2d(x, w)
    with pytest.warns(cw.MemoryWarning, match=f"^torch/default serves: {GEMM} needs [0-9,]+ bytes") as said:
        assert_close(cw.conv2d(x, w), expected)
    with pytest.raises(cw.OutOfMemory):
        cw.conv2d(x, w, algorithm=GEMM)
    builder.refused, tried = 1, []
    for _ in range(8):
        assert_close(cw.conv2d(x, w), expected)
        tried.append(builder.refused)
    assert tried == [2, 2, 3, 3, 3, 3, 4, 4]  # again after 1, 3 and 7 calls
    assert (last().candidate.id, len(said), called) == ("torch/default", 1, [])
    builder.without.clear()
    for _ in range(8):
        assert_close(cw.conv2d(x, w), expected)
    assert len(called) == 2
    assert (last().candidate.id, last().note) == (GEMM, None)


def test_one_that_came_to_be_built_is_relieved_like_any_other(
    memory: Memory, monkeypatch: pytest.MonkeyPatch, told: list[str]
) -> None:
    prefer(monkeypatch, GEMM)
    called, (x, w), builder = count_calls(monkeypatch), operands(), Builder(monkeypatch, GEMM)
    cw.conv2d(x, w)
    builder.without.clear()
    cw.conv2d(x, w)
    memory.most = 0
    assert_close([cw.conv2d(x, w) for _ in range(50)], [F.conv2d(x, w)] * 50)
    assert called == ["forward"]
    assert 1 < memory.refused <= 7
    memory.most = 1 << 60
    for _ in range(64):
        cw.conv2d(x, w)
    assert len(called) > 1


def test_memory_is_looked_at_before_what_could_not_be_built_is_built(
    monkeypatch: pytest.MonkeyPatch, told: list[str]
) -> None:
    prefer(monkeypatch, GEMM)
    (x, w), builder = operands(), Builder(monkeypatch, GEMM)
    monkeypatch.setattr(reliefs, "free_memory_bytes", lambda device: 1)
    assert_close([cw.conv2d(x, w) for _ in range(50)], [F.conv2d(x, w)] * 50)
    assert builder.refused == 1


@pytest.mark.parametrize("beyond", [0, 4096, None])
def test_the_next_best_serves_for_one_that_cannot_be_built(beyond: int | None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where a candidate says that it needs more workspace than was measured, or where only building tells."""
    known = Known(monkeypatch, {"torch/default": 100.0, WINOGRAD: 10.0, GEMM: 20.0})
    x, w = randn(2, 4, 18, 18, dtype=torch.float32), randn(6, 4, 3, 3, dtype=torch.float32)
    known.learn(x, w)
    most, less = sorted((WINOGRAD, GEMM), key=lambda id_: -known.bytes[id_])
    asked = known.session.choose(cw.problem(x, w), device_facts("cpu"), cw.Policy(), most)
    said = None if beyond is None else known.bytes[most] + beyond
    asked = replace(asked, candidate=replace(asked.candidate, workspace_bytes=said))
    monkeypatch.setattr(Session, "choose", lambda self, problem, device, policy, name: asked)
    Builder(monkeypatch, most)
    needed = "memory to be built" if said is None else f"{said:,} bytes of workspace"
    with pytest.warns(cw.MemoryWarning, match=re.escape(f"{less} serves: {most} needs {needed}, and ran out")):
        assert_close(cw.conv2d(x, w, policy=cw.Policy()), F.conv2d(x, w), rtol=1e-3, atol=1e-3)
    assert last().candidate.id == less


def test_of_one_that_nobody_knows_anything_about_what_needs_no_workspace_serves(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    known = Known(monkeypatch, {"torch/default": 100.0, "torch/onednn": 10.0, WINOGRAD: 1.0})
    x, w = randn(2, 4, 18, 18, dtype=torch.float32), randn(6, 4, 3, 3, dtype=torch.float32)
    known.learn(x, w)
    assert known.bytes["torch/onednn"] == 0 < known.bytes[WINOGRAD]
    asked = known.session.choose(cw.problem(x, w), device_facts("cpu"), cw.Policy(), GEMM)
    asked = replace(asked, candidate=replace(asked.candidate, workspace_bytes=None))
    monkeypatch.setattr(Session, "choose", lambda self, problem, device, policy, name: asked)
    Builder(monkeypatch, GEMM)
    with pytest.warns(cw.MemoryWarning, match=f"^torch/onednn serves: {GEMM} needs memory to be built"):
        assert_close(cw.conv2d(x, w, policy=cw.Policy()), F.conv2d(x, w), rtol=1e-3, atol=1e-3)
