"""The six functions by their names, with operands for each."""

from __future__ import annotations

from typing import Any

import pytest
from torch.nn import functional as F

from convwright.settings import BUDGETS_US, Mode, settings
from convwright.tuning import session as sessions
from eager.prefer import randn

RANKS = (1, 2, 3)
NAMES = [f"conv{rank}d" for rank in RANKS] + [f"conv_transpose{rank}d" for rank in RANKS]
EACH = pytest.mark.parametrize("name", NAMES)
ACTIVATED = {None: lambda y: y, "relu": F.relu, "silu": F.silu, "gelu": F.gelu, "hardswish": F.hardswish}


def rank_of(name: str) -> int:
    return int(name[-2])


def is_transposed(name: str) -> bool:
    return "transpose" in name


def operands(name: str, n: int = 2, c: int = 4, k: int = 6, groups: int = 1, taps: tuple[int, ...] = (3, 2, 3)) -> Any:
    """Input, weight and bias; sizes and taps differ by dimension."""
    rank = rank_of(name)
    w = (c, k // groups) if is_transposed(name) else (k, c // groups)
    x_shape, w_shape = (n, c, *(6, 5, 4)[:rank]), (*w, *taps[:rank])
    return randn(*x_shape, seed=1), randn(*w_shape, seed=2), randn(k, seed=3)


def in_mode(mode: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Searches are short: what a call computes has to be right whatever is found."""
    monkeypatch.setenv("CONVWRIGHT_MODE", mode)
    monkeypatch.setitem(BUDGETS_US, Mode.QUICK, 2e4)
    settings.cache_clear()
    sessions.session.cache_clear()
