"""Whoever is told how far a public function has come is told in one order: done, of how much, and what comes next."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

import convwright as cw

LAYER, X = nn.Conv2d(3, 4, 3).eval(), torch.randn(1, 3, 8, 8)
CALLS: dict[str, Callable[[Any], object]] = {
    "find": lambda progress: cw.find("ic3ih8oc4kh3", device="cpu", mode="quick", progress=progress),
    "tune": lambda progress: cw.tune(LAYER, X, mode="heuristic", progress=progress),
    "advise": lambda progress: cw.advise(LAYER, X, mode="heuristic", progress=progress),
    "quantize": lambda progress: cw.quantize(LAYER, [X], progress=progress),
    "optimize": lambda progress: cw.optimize(LAYER, X, mode="heuristic", progress=progress),
}


@pytest.mark.parametrize("name", CALLS)
def test_all_tell_in_one_order(name: str) -> None:
    told: list[tuple[int, int, str]] = []
    CALLS[name](lambda *step: told.append(step))
    assert len(told) > 1
    for done, total, what in told:
        assert isinstance(what, str)
        assert 0 <= done <= total
    assert any(what for *_, what in told)
    assert told[-1][2] == ""
    assert told[-1][0] == told[-1][1]


@pytest.mark.parametrize("name", CALLS)
def test_all_write_a_line_and_refuse_what_cannot_be_called(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    CALLS[name](True)
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.endswith("\r")
    with pytest.raises(
        cw.BadInput, match=r"^`progress` must be True, False or a function of \(done, total, what\), got 3"
    ):
        CALLS[name](3)
