"""A small network with every kind of convolution, and inputs for it."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from convwright.quantizing.quantized import Quantized, QuantizedLayer


class Standardized(nn.Conv2d):
    """A convolution that does more than PyTorch's."""

    def forward(self, input: Tensor) -> Tensor:  # noqa: A002
        return F.conv2d(input, self.weight - self.weight.mean(), self.bias)


class Net(nn.Module):
    """One of each kind: plain, merged, shared, grouped, and all that is kept."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 3, stride=2, padding=1, padding_mode="circular", bias=False)
        self.norm = nn.BatchNorm2d(8)
        self.act = nn.ReLU(inplace=True)
        self.shared = nn.Conv2d(8, 8, 3, padding=1, groups=4)
        self.twice = nn.ReLU()
        self.up = nn.ConvTranspose2d(8, 4, 2)
        self.other = Standardized(4, 4, 1)
        self.wide = nn.Conv2d(4, 4, 1).double()
        self.spare = nn.Conv2d(4, 4, 1)
        self.hooked = nn.Conv2d(4, 4, 1)
        self.hooked.register_forward_hook(lambda module, args, output: output * 2)
        self.silent = nn.Conv2d(4, 4, 1)
        self.free = nn.Parameter(torch.randn(2, 4, 1, 1))

    def forward(self, x: Tensor) -> Tensor:
        x = self.act(self.norm(self.stem(x)))
        x = self.twice(self.shared(10 * self.twice(self.shared(x))))
        x = self.hooked(self.other(self.up(x)))
        x = self.wide(x.double()).to(x.dtype) + self.silent(torch.zeros_like(x))
        return F.conv2d(x, self.free)


def trained(model: Any, seed: int = 0) -> Any:
    """Statistics as training leaves them."""
    generator = torch.Generator().manual_seed(seed)
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d) and module.track_running_stats:
            module.running_mean.uniform_(-0.5, 0.5, generator=generator)
            module.running_var.uniform_(0.2, 3, generator=generator)
            with torch.no_grad():
                module.weight.uniform_(-1, 2, generator=generator)
                module.bias.uniform_(-0.5, 0.5, generator=generator)
    return model.eval()


def images(count: int = 3, channels: int = 3, size: int = 12) -> list[Tensor]:
    generator = torch.Generator().manual_seed(1)
    return [torch.randn(2, channels, size, size, generator=generator) for _ in range(count)]


def by_name(made: Quantized) -> dict[str, QuantizedLayer]:
    return {layer.name: layer for layer in made.layers}
