"""What follows a convolution and could be computed with it, and what a call of ours computes with it already."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import convwright as cw
from convwright.eager.calls.posed import Wanted
from convwright.engine.capture.layers import LayerCall, convolutions_of
from engine.net import Net, X


def behind(layer: LayerCall) -> list[str]:
    return [follower.op for follower in layer.follows]


FOLLOWED: list[tuple[Any, list[str]]] = [
    (lambda net, x: net.conv(x).relu(), ["relu"]),
    (lambda net, x: torch.relu_(net.bn(net.conv(x))), ["batch_norm", "relu"]),
    (lambda net, x: F.relu(net.bn(net.conv(x)) + x, inplace=True), ["batch_norm", "add", "relu"]),
    (lambda net, x: x.clone().add_(net.conv(x)).relu(), ["add", "relu"]),
    (lambda net, x: F.gelu(net.conv(x)), ["gelu"]),
    (lambda net, x: F.gelu(net.conv(x), approximate="tanh"), ["gelu by tanh"]),
    (lambda net, x: F.relu(net.conv(x) + 1), ["add of another shape"]),
    (lambda net, x: F.max_pool2d(net.conv(x), 2).relu(), ["max_pool2d"]),
    (lambda net, x: net.conv(x), []),
]


@pytest.mark.parametrize(("forward", "expected"), FOLLOWED, ids=[" ".join(words) or "end" for _, words in FOLLOWED])
def test_what_follows(forward: Any, expected: list[str]) -> None:
    model = Net(forward, conv=nn.Conv2d(3, 3, 3, padding=1), bn=nn.BatchNorm2d(3))
    (layer,) = convolutions_of(model, X)
    assert behind(layer) == expected


def test_a_result_that_two_take_is_followed_by_neither() -> None:
    def twice(net: Any, x: Tensor) -> Tensor:
        y = net.conv(x)
        return torch.relu(y) * y

    def seen_outside(net: Any, x: Tensor) -> tuple[Tensor, Tensor]:
        y = net.conv(x)
        return y, torch.relu(y)

    for forward in (twice, seen_outside):
        (layer,) = convolutions_of(Net(forward, conv=nn.Conv2d(3, 3, 3)), X)
        assert behind(layer) == []


def test_looking_at_a_shape_takes_nothing() -> None:
    def forward(net: Any, x: Tensor) -> Tensor:
        y = net.conv(x)
        return torch.relu(y).view(y.shape[0], -1) if y.dim() == 4 and y.size(1) else y

    (layer,) = convolutions_of(Net(forward, conv=nn.Conv2d(3, 3, 3)), X)
    assert behind(layer)[:1] == ["relu"]


def test_of_two_that_are_added_only_the_later_can_take_the_sum() -> None:
    model = Net(lambda net, x: F.relu(net.a(x) + net.b(x)), a=nn.Conv2d(3, 3, 1), b=nn.Conv2d(3, 3, 1))
    first, second = convolutions_of(model, X)
    assert (behind(first), behind(second)) == (["add with a later one"], ["add", "relu"])


def test_a_layer_that_is_followed_by_different_things_is_followed_by_what_they_share() -> None:
    def forward(net: Any, x: Tensor) -> Tensor:
        return torch.sigmoid(torch.relu(net.conv(x))) + torch.relu(net.conv(x))

    (layer,) = convolutions_of(Net(forward, conv=nn.Conv2d(3, 3, 3)), X)
    assert layer.calls == 2
    assert behind(layer) == ["relu"]


@pytest.mark.parametrize(
    ("activation", "residual", "trains", "epilogue"),
    [
        ("relu", False, False, "bias+relu"),
        ("silu", False, False, "bias+silu"),
        ("relu", True, True, "residual+bias+relu"),
        ("silu", True, True, "residual+bias"),  # whose derivative is autograd's
        (None, True, True, "residual+bias"),
    ],
)
def test_what_a_call_of_ours_computes_behind_a_convolution_is_a_part_of_it(
    activation: str | None, residual: bool, trains: bool, epilogue: str
) -> None:
    def forward(net: Any, x: Tensor) -> Tensor:
        y, conv = net.first(x), net.conv
        z = y if residual else None
        return torch.relu(cw.conv2d(y, conv.weight, conv.bias, padding=1, activation=activation, residual=z))

    model = Net(forward, first=nn.Conv2d(3, 3, 1), conv=nn.Conv2d(3, 3, 3, padding=1))
    first, layer = convolutions_of(model, X, backward=trains)
    assert (layer.name, str(layer.problem.epilogue), layer.calls) == ("functional#1", epilogue, 1)
    assert layer.wanted == (Wanted(x=True, w=True, bias=True, residual=residual) if trains else Wanted())
    assert layer.follows == ()
    assert [follower.op for follower in first.follows] == ["conv2d"]


@pytest.mark.parametrize("image", [X, X[0]])
def test_a_call_of_ours_in_words_and_on_one_image(image: Tensor) -> None:
    def forward(net: Any, x: Tensor) -> Tensor:
        return cw.conv2d(x, net.conv.weight, None, 1, "same", activation="relu")

    (layer,) = convolutions_of(Net(forward, conv=nn.Conv2d(3, 3, 3)), image)
    assert (layer.problem.n, layer.problem.y.shape[1:]) == (len(image) if image.dim() == 4 else 1, image.shape[-3:])


def test_under_autocast_a_sum_in_another_dtype_is_pytorchs() -> None:
    def forward(net: Any, x: Tensor) -> Tensor:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return cw.conv2d(x, net.conv.weight, padding=1, activation="relu", residual=x)

    (layer,) = convolutions_of(Net(forward, conv=nn.Conv2d(3, 3, 3)), X)
    assert (str(layer.problem.dtype), str(layer.problem.epilogue)) == ("bf16", "none")
