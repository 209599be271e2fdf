"""Kernels are loaded where PyTorch holds all memory of a GPU for later."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch

from convwright.backends.triton.launching import launch
from convwright.errors import BackendError

BINARY: Any = SimpleNamespace(key="a key of no kernel")


@pytest.fixture
def emptied(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    seen: list[str] = []
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: seen.append("emptied"))
    monkeypatch.setattr(launch, "_functions", {})
    return seen


def failing(monkeypatch: pytest.MonkeyPatch, times: int, meaning: str) -> None:
    """Loading fails so many times first."""
    left = [BackendError(f"cuModuleGetFunction of the CUDA driver failed: {meaning}")] * times

    def load(index: int, binary: object) -> int:
        if left:
            raise left.pop()
        return 7

    monkeypatch.setattr(launch, "_load", load)


def test_what_pytorch_keeps_makes_room(monkeypatch: pytest.MonkeyPatch, emptied: list[str]) -> None:
    failing(monkeypatch, 1, "CUDA_ERROR_OUT_OF_MEMORY (2), out of memory")
    assert [launch._function(0, BINARY) for _ in range(2)] == [7, 7]
    assert emptied == ["emptied"]


def test_a_lasting_shortage_is_said(monkeypatch: pytest.MonkeyPatch, emptied: list[str]) -> None:
    failing(monkeypatch, 2, "CUDA_ERROR_OUT_OF_MEMORY (2), out of memory")
    with pytest.raises(BackendError, match="out of memory"):
        launch._function(0, BINARY)
    assert launch._function(0, BINARY) == 7


def test_other_failures_are_not_tried_again(monkeypatch: pytest.MonkeyPatch, emptied: list[str]) -> None:
    failing(monkeypatch, 1, "CUDA_ERROR_INVALID_IMAGE (200), device kernel image is invalid")
    with pytest.raises(BackendError, match="invalid"):
        launch._function(0, BINARY)
    assert not emptied
