"""Permuted dimensions, norms and weights that are computed: what becomes of them in a network."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from convwright.core.problem import ConvProblem
from convwright.engine.export.exported import exported
from convwright.engine.network import Network
from convwright.engine.passes.listed import passed
from convwright.engine.reference import reference
from convwright.errors import Refused
from convwright.graph.operations import Foreign
from engine.test_optimize import Called, agree, engine, flat

IMAGE = torch.randn(2, 4, 6, 5, generator=torch.Generator().manual_seed(1))


def captured(model: nn.Module, x: Tensor = IMAGE) -> Network:
    return exported(model.eval(), (x,), (x,)).network


def foreign(network: Network) -> list[str]:
    return [node.operation.target for node in network.graph.nodes if isinstance(node.operation, Foreign)]


def check(model: nn.Module, x: Tensor = IMAGE, *, runs: bool = True) -> Network:
    """Before and after passes, and as an engine where it ``runs``, it computes what the model computes."""
    network = captured(model, x)
    agree(reference(network, [x]), model, x)
    changed = passed(network).network
    agree(reference(changed, [x]), model, x)
    if runs:
        agree(engine(model, x)(x), model, x)
    return changed


class Block(nn.Module):
    """As of a ConvNeXt."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.conv, self.norm = nn.Conv2d(4, 4, 3, padding=1, groups=4), nn.LayerNorm(4)
        self.up, self.down = nn.Linear(4, 16), nn.Linear(16, 4)
        self.scale = nn.Parameter(torch.randn(4, 1, 1))

    def forward(self, x: Tensor) -> Tensor:
        y = self.norm(self.conv(x).permute(0, 2, 3, 1))
        y = self.down(F.gelu(self.up(y))).permute(0, 3, 1, 2)
        return x + self.scale * y


def test_a_block_that_works_on_pixels_has_no_permuted_copy() -> None:
    network = check(Block())
    assert not foreign(network)
    assert sum(isinstance(node.operation, ConvProblem) for node in network.graph.nodes) == 3


LAYERS: list[tuple[Callable[..., Any], int]] = [
    (lambda x: x.permute(0, 2, 3, 1), 1),
    (lambda x: (x.permute(0, 2, 3, 1) + torch.arange(4.0)).permute(0, 3, 1, 2), 0),
    (lambda x: x.permute(0, 2, 3, 1) * x.permute(0, 2, 3, 1), 1),
    (lambda x: (x.permute(0, 2, 3, 1) * torch.ones(5, 1)).mean((1, 2)), 0),
    (lambda x: x.permute(0, 2, 3, 1).sum(2), 1),
    (lambda x: x.permute(0, 2, 3, 1).sum(3, keepdim=True), 0),
    (lambda x: x.transpose(2, 3).amax(-1), 0),
    (lambda x: x.transpose(1, 3).amax(-1), 1),
    (lambda x: x.permute(0, 2, 3, 1) + x.transpose(1, 3).transpose(1, 2), 1),
    (lambda x: x.permute(0, 2, 3, 1) + x.mean((2, 3)).view(2, 1, 1, 4), 1),
    (lambda x: x.permute(0, 2, 3, 1).softmax(-1).permute(0, 3, 1, 2), 0),
    (lambda x: x.permute(0, 2, 3, 1).double().permute(0, 3, 1, 2), 0),
    (lambda x: x.permute(0, 2, 3, 1).flatten(1), 1),
    (lambda x: x.permute(1, 0, 2, 3).relu(), 1),
    (lambda x: x.permute(0, 2, 3, 1).norm(dim=(1, 2), keepdim=True).mean(-1, keepdim=True) + x, 0),
    (lambda x: x[:, 1:3, :, 2:-1] + 1, 0),
    (lambda x: torch.cat([each * 2 for each in x.split((1, 3), 1)][::-1], 1), 0),
    (lambda x: [each.relu() for each in x.permute(0, 2, 3, 1).split(3, -1)], 1),
    (lambda x: x.permute(0, 2, 3, 1).unbind(1)[2] * x.select(2, -1).transpose(1, 2), 1),
    (lambda x: x.chunk(2, 3)[0] + x[0, 1, 2, 3], 0),
    (lambda x: torch.stack([x * 2, x + 1, x.relu()], 1).sum(1) + torch.stack([x + 3, x * 3], -1).amax(-1), 0),
    (lambda x: torch.addcmul(x, x, x.permute(0, 1, 2, 3), value=0.5), 0),
    (lambda x: x.view(2, 2, 2, 6, 5).transpose(1, 2).reshape(x.shape).chunk(2, 1)[1].relu(), 1),
]


@pytest.mark.first_cases(5)
@pytest.mark.parametrize("place", range(len(LAYERS)))
def test_permuted_values(place: int) -> None:
    function, copies = LAYERS[place]
    assert foreign(check(Called(function), runs=place % 3 == 0)) == ["aten.permute.default"] * copies


@pytest.mark.first_cases(3)
@pytest.mark.parametrize(
    ("layer", "others"),
    [
        (nn.LayerNorm([4, 6, 5]), []),
        (nn.InstanceNorm2d(4), []),
        (nn.GroupNorm(2, 4), []),
        (nn.LayerNorm(5, elementwise_affine=False), []),
        (nn.InstanceNorm2d(4, affine=True), []),
        (nn.GroupNorm(1, 4), []),
        (nn.GroupNorm(4, 4), []),
        (nn.GroupNorm(2, 4, affine=False), []),
        (nn.InstanceNorm2d(4, track_running_stats=True), ["aten.instance_norm.default"]),
    ],
)
def test_norms(layer: nn.Module, others: list[str]) -> None:
    torch.manual_seed(1)
    for parameter in layer.parameters():
        nn.init.normal_(parameter)
    assert foreign(check(nn.Sequential(nn.Conv2d(4, 4, 1), layer, nn.ReLU()))) == others


@pytest.mark.first_cases(2)
@pytest.mark.parametrize("shape", [(2, 4, 3, 2), (2, 4), (2, 4, 5), (1, 4, 3, 2, 5)])
def test_groups_of_channels(shape: tuple[int, ...]) -> None:
    torch.manual_seed(1)
    x, norm = torch.randn(shape), nn.GroupNorm(2, 4)
    nn.init.normal_(norm.weight)
    for given in (x, x.to(memory_format=torch.channels_last)) if len(shape) == 4 else (x,):
        assert not foreign(check(nn.Sequential(norm, nn.SiLU()), given, runs=len(shape) != 3))


def test_groups_of_permuted_channels_are_those_of_a_copy() -> None:
    network = check(Called(lambda x: F.relu(F.group_norm(x.permute(0, 2, 3, 1), 2))), IMAGE[:, :, :4], runs=False)
    assert foreign(network) == ["aten.permute.default"]


class Standardized(nn.Conv2d):
    def forward(self, x: Tensor) -> Tensor:
        mean = self.weight.mean((1, 2, 3), keepdim=True)
        var = self.weight.var((1, 2, 3), keepdim=True)
        return F.conv2d(x, (self.weight - mean) / (var + 1e-5).sqrt(), self.bias, padding=1)


def test_a_weight_that_is_computed_from_weights_is_a_constant() -> None:
    torch.manual_seed(2)
    network = check(nn.Sequential(Standardized(4, 3, 3), nn.BatchNorm2d(3), nn.ReLU()))
    assert not foreign(network)
    assert isinstance(network.graph.nodes[0].operation, ConvProblem)
    assert len(flat(network.graph.outputs)) == 1


def test_what_is_made_of_numbers_is_a_constant() -> None:
    def positions(x: Tensor) -> Tensor:
        mask = ~torch.zeros(1, 6, 5).bool()
        return x + mask.cumsum(1).float() * torch.arange(5.0) + torch.ones(1)

    assert not foreign(check(Called(positions)))


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x + torch.rand(5),
        lambda x: x * torch.rand_like(x),
        lambda x: F.dropout(x, 0.5, training=True),
        lambda x: F.rrelu(x, training=True),
        lambda x: F.scaled_dot_product_attention(x, x, x, dropout_p=0.5),
    ],
)
def test_random_numbers_are_refused(function: Any) -> None:
    with pytest.raises(Refused, match="draws random numbers"):
        captured(Called(function))


@pytest.mark.parametrize(
    "function",
    [
        lambda x: F.dropout(x, 0.5, training=False),
        lambda x: F.dropout(x, 0.0, training=True),
        lambda x: F.scaled_dot_product_attention(x, x, x),
    ],
)
def test_what_draws_only_in_training_is_planned(function: Any) -> None:
    check(Called(function))
