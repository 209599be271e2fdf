"""What stands behind a convolution, as a weight and a bias of its own."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from convwright.engine.capture.example import Subject
from convwright.engine.capture.layers import record
from convwright.engine.capture.merged import Merged, merged


def norm_of(channels: int, *, affine: bool = True) -> Any:
    norm: Any = nn.BatchNorm2d(channels, affine=affine, eps=1e-3).eval()
    generator = torch.Generator().manual_seed(0)
    norm.running_mean.uniform_(-2, 2, generator=generator)
    norm.running_var.uniform_(0.1, 4, generator=generator)
    if affine:
        with torch.no_grad():
            norm.weight.uniform_(-2, 2, generator=generator)
            norm.bias.uniform_(-2, 2, generator=generator)
    return norm


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("affine", [True, False])
def test_normalisation_is_a_weight_and_a_bias(bias: bool, affine: bool) -> None:
    torch.manual_seed(0)
    conv, norm, x = nn.Conv2d(4, 6, 3, bias=bias, groups=2), norm_of(6, affine=affine), torch.randn(2, 4, 8, 8)
    both = Merged(conv, norm, nn.ReLU(inplace=True))
    weight, shift = both.weight(), both.bias()
    assert weight.dtype is torch.float64
    with torch.no_grad():
        y = conv(x)
        before = y.clone()
        meant = both.own(y)
        assert torch.equal(y, before)
        assert torch.equal(meant, torch.relu(norm(y)))
    torch.testing.assert_close(F.conv2d(x.double(), weight, shift, groups=2).relu().float(), meant, atol=1e-5, rtol=0)
    assert both.behind == (both.norm, both.activation)


def test_a_convolution_alone_is_what_it_is() -> None:
    conv = nn.Conv2d(4, 6, 3, bias=False)
    alone = Merged(conv)
    assert torch.equal(alone.weight(), conv.weight.double())
    assert alone.bias() is None
    assert (alone.behind, str(alone.kind)) == ((), "none")


@pytest.mark.parametrize(
    ("behind", "taken"),
    [
        ([nn.BatchNorm2d(6), nn.ReLU()], 2),
        ([nn.BatchNorm2d(6), nn.Hardswish(), nn.ReLU()], 2),
        ([nn.SiLU(), nn.BatchNorm2d(6)], 1),
        ([nn.GELU()], 1),
        ([nn.GELU(approximate="tanh")], 0),
        ([nn.ReLU6()], 0),
        ([nn.InstanceNorm2d(6), nn.ReLU()], 0),
        ([nn.MaxPool2d(2), nn.ReLU()], 0),
        ([], 0),
    ],
)
def test_what_is_taken(behind: list[nn.Module], taken: int) -> None:
    model = nn.Sequential(nn.Conv2d(4, 6, 3), *behind, nn.Flatten()).eval()
    (call,) = record(Subject.of(model, torch.randn(1, 4, 8, 8))).layers
    modules = dict(model.named_modules())
    found = merged(model[0], [call], modules, dict.fromkeys(modules, 1))
    assert found.behind == tuple(behind[:taken])
    assert merged(model[0], [call], modules, dict.fromkeys(modules, 2)).behind == ()  # they are called elsewhere, too
    assert merged(model[0], [], modules, {}).behind == ()
