"""The same model is the same graph, whichever PyTorch exports it: digests of graphs that 2.11 and 2.13 give."""

from __future__ import annotations

from collections.abc import Callable
from hashlib import sha256
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from convwright.engine.export.exported import exported
from engine.net import Net
from engine.random_network import RandomNetwork


def norms(self: Any, x: Tensor) -> dict[str, Tensor]:
    y = F.silu(F.group_norm(x, 2)) + F.instance_norm(x)
    return {"rows": F.layer_norm(y, (8,)).softmax(-1), "pixels": F.normalize(y, dim=1)}


def sizes(self: Any, x: Tensor) -> tuple[Tensor, ...]:
    half = F.max_pool2d(x, 2) + F.adaptive_avg_pool2d(x, 4) + F.avg_pool2d(x, 3, 2, 1)
    left, right = F.interpolate(half, scale_factor=2, mode="bilinear").chunk(2, 1)
    return torch.cat([left, right.flip(0)[:, :1], F.interpolate(half, (8, 8))], 1), half.flatten(1)


def layers(self: Any, x: Tensor) -> Tensor:
    y = F.gelu(self.up(F.hardswish(self.down(x))))
    gate = self.gate(y.mean((2, 3))).sigmoid()
    return F.pad(y * gate[:, :, None, None], (1, 1, 0, 0), mode="reflect") * 2


MADE: dict[str, Callable[[], nn.Module]] = {
    **{f"random {seed}": lambda seed=seed: RandomNetwork(seed) for seed in range(6)},  # type: ignore[misc]
    "norms": lambda: Net(norms),
    "sizes": lambda: Net(sizes),
    "layers": lambda: Net(
        layers, up=nn.ConvTranspose2d(8, 4, 2, 2), down=nn.Conv2d(4, 8, 3, 2, 1, groups=2), gate=nn.Linear(4, 4)
    ),
}
DIGESTS = {
    "random 0": "a43658589b96",
    "random 1": "0c9cdcb87575",
    "random 2": "399ec45d9f8a",
    "random 3": "57821b9d4f14",
    "random 4": "991f706df131",
    "random 5": "21d7c891871b",
    "norms": "5f28cb645989",
    "sizes": "cad28c8a5ca6",
    "layers": "a81ebfe2ccb3",
}


@pytest.mark.first_cases(3)
@pytest.mark.parametrize("name", MADE)
def test_graphs_do_not_hang_on_pytorchs_version(name: str) -> None:
    x = torch.zeros(2, 4, 8, 8)
    graph = exported(MADE[name]().eval(), (x,), [x]).network.graph
    assert sha256(repr(graph).encode()).hexdigest()[:12] == DIGESTS[name], graph
