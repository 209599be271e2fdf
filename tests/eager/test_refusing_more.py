"""Calls with more to them than PyTorch's function takes: a mistake that PyTorch refuses as well is an error of its
kind, with its words."""

from __future__ import annotations

from re import escape
from typing import Any

import pytest
import torch

import convwright as cw
from convwright.errors import BadArgument, BadCall, first_line

X, W = torch.ones(1, 3, 8, 8), torch.ones(4, 3, 3, 3)
MORE: dict[str, dict[str, Any]] = {
    "activation": {"activation": "relu"},
    "algorithm": {"algorithm": "reference/gemm"},
    "policy": {"policy": cw.Policy(max_workspace_bytes=0)},
    "residual": {"residual": torch.ones(1, 4, 6, 6)},
    "out": {"out": torch.ones(1, 4, 6, 6)},
}
MISTAKES = [
    ((X[:, :2], W), {}, BadCall),
    ((X, torch.ones(4, 3, 9, 9)), {}, BadCall),
    ((X, W), {"stride": 0}, BadCall),
    ((X, W), {"padding": -1}, BadCall),
    ((X, W.double()), {}, BadCall),
    ((None, W), {}, BadArgument),
    ((X, W), {"dilation": 1.5}, BadArgument),
]


@pytest.mark.parametrize("more", MORE)
@pytest.mark.parametrize(("operands", "window", "kind"), MISTAKES)
def test_it_is_an_error_of_both_kinds(operands: Any, window: Any, kind: type[Exception], more: str) -> None:
    with pytest.raises((RuntimeError, TypeError)) as theirs:
        torch.nn.functional.conv2d(*operands, **window)
    words = first_line(theirs.value).partition(" - got")[0].removesuffix(", but expected one of:")
    with pytest.raises(kind, match=rf"\(PyTorch says: {escape(words)}") as ours:
        cw.conv2d(*operands, **window, **MORE[more])
    assert isinstance(ours.value, cw.BadInput)


@pytest.mark.parametrize(
    ("more", "sentence"),
    [({"activation": "rellu"}, "rellu"), ({"algorithm": "magic"}, "magic"), ({"policy": 3}, "policy")],
)
def test_a_mistake_that_pytorch_cannot_know_is_said_in_our_words_alone(more: Any, sentence: str) -> None:
    with pytest.raises(cw.BadInput, match=sentence) as raised:
        cw.conv2d(X, W, **more)
    assert not isinstance(raised.value, RuntimeError | TypeError)
    assert "PyTorch says" not in str(raised.value)
