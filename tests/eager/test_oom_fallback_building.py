"""Where there is no memory to build a chosen candidate another serves, until there is."""

from __future__ import annotations

import pytest
from torch.nn import functional as F
from torch.testing import assert_close

import convwright as cw
from convwright.eager.running import oom_fallback
from eager.prefer import GEMM, count_calls, prefer
from eager.scarce import Builder, Memory, last, operands


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
    monkeypatch.setattr(oom_fallback, "free_memory_bytes", lambda device: 1)
    assert_close([cw.conv2d(x, w) for _ in range(50)], [F.conv2d(x, w)] * 50)
    assert builder.refused == 1
