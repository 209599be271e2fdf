"""A mistake that PyTorch's own function refuses as well is an error of its kind, and tells its words."""

import pickle
from re import escape, fullmatch
from typing import Any

import pytest
import torch

import convwright as cw
from convwright.errors import BadArgument, BadCall, first_line

X, W = torch.ones(1, 3, 8, 8), torch.ones(4, 3, 3, 3)
MISTAKES = [
    ((X, W[:, :2]), {}, BadCall),
    ((X, torch.ones(4, 3, 9, 9)), {}, BadCall),
    ((X, W), {"stride": 0}, BadCall),
    ((X, W), {"padding": -1}, BadCall),
    ((X, W), {"padding": "full"}, BadCall),
    ((X, W), {"groups": 2}, BadCall),
    ((X, W.double()), {}, BadCall),
    ((X, W, torch.ones(5)), {}, BadCall),
    ((X[None], W), {}, BadCall),
    ((None, W), {}, BadArgument),
    ((X, W), {"dilation": 1.5}, BadArgument),
    ((X.bool(), W.bool()), {}, BadCall),
    ((X.to(torch.complex64), W.to(torch.complex64)), {"stride": 1.5}, BadArgument),
    ((X.to(torch.float8_e4m3fn), W.to(torch.float8_e4m3fn)), {}, BadCall),
]


def every_argument(
    x: Any, w: Any, bias: Any = None, stride: Any = 1, padding: Any = 0, dilation: Any = 1, groups: Any = 1
) -> tuple[Any, ...]:
    """Of which PyTorch lists all that it was given where one is wrong."""
    return x, w, bias, stride, padding, dilation, groups


@pytest.mark.parametrize(("operands", "window", "kind"), MISTAKES)
def test_what_pytorch_refuses_is_an_error_of_its_kind(operands: Any, window: Any, kind: type[Exception]) -> None:
    with pytest.raises((RuntimeError, TypeError)) as theirs:
        torch.nn.functional.conv2d(*every_argument(*operands, **window))
    with pytest.raises(kind) as ours:
        cw.conv2d(*operands, **window)
    assert isinstance(ours.value, cw.BadInput)
    words = first_line(theirs.value).removesuffix(", but expected one of:")
    assert fullmatch(rf"`?\w.* \(PyTorch says: {escape(words)}\)", str(ours.value))
    assert type(ours.value.__cause__) is type(theirs.value)
    again = pickle.loads(pickle.dumps(ours.value))
    assert (type(again), str(again)) == (kind, str(ours.value))


def test_so_it_is_where_a_call_is_remembered() -> None:
    weight = torch.ones(2, 3, 3, 3)
    for _ in range(40):
        cw.conv2d(X, weight)
        with pytest.raises(BadCall, match=r"groups.* \(PyTorch says: Given groups=2.*\)$"):
            cw.conv2d(X, weight, groups=2)
    with pytest.raises(BadCall, match=r"at least 1.* \(PyTorch says: non-positive stride is not supported\)$"):
        cw.conv_transpose2d(X, torch.ones(3, 2, 3, 3), stride=0)


@pytest.mark.parametrize(
    "asked", [{"activation": "cosine"}, {"algorithm": ""}, {"policy": "fast"}, {"residual": X}, {"out": X}]
)
def test_what_pytorch_does_not_know_of_is_told_in_our_words_alone(asked: Any) -> None:
    with pytest.raises(cw.BadInput) as told:
        cw.conv2d(X, W, **asked)
    assert type(told.value) is cw.BadInput
    assert "PyTorch says" not in str(told.value)


def test_operands_that_lie_elsewhere_are_not_read() -> None:
    with pytest.raises(cw.BadInput, match=r"must be on cpu like `input`, got one on meta$"):
        cw.conv2d(X, W.to("meta"))


def test_what_pytorch_takes_is_told_as_it_is() -> None:
    with pytest.raises(cw.BadInput, match=r"^no algorithm here is called 'torch/no-such'; .* there are ") as told:
        cw.conv2d(X, W, algorithm="torch/no-such")
    assert "PyTorch says" not in str(told.value)
