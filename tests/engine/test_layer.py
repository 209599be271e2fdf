"""Models of PyTorch's become layers, or are refused by the name of the module that cannot."""

from __future__ import annotations

import pytest
from torch import nn

from convwright.engine.chains.layer import from_sequential
from convwright.errors import BadInput


def test_nested_and_repeated_modules_come_in_the_order_in_which_they_run() -> None:
    relu, first, second = (
        nn.ReLU(inplace=True),
        nn.Conv2d(2, 4, 3, stride=2),
        nn.Conv2d(4, 4, 3, padding="same", groups=2),
    )
    layers = from_sequential(nn.Sequential(nn.Sequential(first, relu), second, second, relu))
    assert [layer.weight for layer in layers] == [first.weight, second.weight, second.weight]
    assert [layer.activation for layer in layers] == ["relu", None, "relu"]
    assert [(layer.stride, layer.padding, layer.groups) for layer in layers[:2]] == [
        ((2, 2), (0, 0), 1), ((1, 1), "same", 2),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (nn.Sequential(nn.ReLU()), "a ReLU must follow a convolution, but `0` comes first"),
        (nn.Sequential(nn.Sequential(nn.Conv2d(1, 1, 1), nn.GELU())), "`0.1` is a GELU"),
        (nn.Sequential(nn.ConvTranspose2d(1, 1, 1)), "`0` is a ConvTranspose2d"),
        (nn.Sequential(nn.Conv2d(1, 1, 3, padding=1, padding_mode="reflect")), "padding_mode='reflect'"),
        (nn.Sequential(nn.utils.spectral_norm(nn.Conv2d(1, 1, 1))), "`0` has hooks"),
        (
            nn.Sequential(nn.utils.parametrizations.weight_norm(nn.Conv2d(1, 1, 1))),
            "`0` is a ParametrizedConv2d",
        ),
    ],
)
def test_what_a_chain_cannot_run_is_refused_by_name(model: nn.Sequential, message: str) -> None:
    with pytest.raises(BadInput, match=message):
        from_sequential(model)


def test_a_convolution_may_have_no_bias() -> None:
    (layer,) = from_sequential(nn.Sequential(nn.Conv1d(2, 3, 1, bias=False)))
    assert layer.bias is None
