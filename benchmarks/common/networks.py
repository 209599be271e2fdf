"""Networks of other layers than image classifiers are made of: transposed, dilated, causal, depthwise in three
dimensions, and many channels at large images. Each is written as libraries write it, with PyTorch's own modules."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn import functional as F


class Residual(nn.Module):
    def __init__(self, c: int, k: int) -> None:
        super().__init__()
        self.norm1, self.conv1 = nn.GroupNorm(8, c), nn.Conv2d(c, k, 3, padding=1)
        self.norm2, self.conv2 = nn.GroupNorm(8, k), nn.Conv2d(k, k, 3, padding=1)
        self.skip = nn.Identity() if c == k else nn.Conv2d(c, k, 1)

    def forward(self, x: Tensor) -> Tensor:
        y = self.conv2(F.silu(self.norm2(self.conv1(F.silu(self.norm1(x))))))
        out: Tensor = self.skip(x) + y
        return out


class UNet(nn.Module):
    """As diffusion models have one: 20 convolutions, two of them transposed, the last with reflecting borders."""

    def __init__(self, width: int = 48) -> None:
        super().__init__()
        c, d, e = width, 2 * width, 4 * width
        self.stem = nn.Conv2d(3, c, 3, padding=1)
        self.down1, self.half1 = Residual(c, c), nn.Conv2d(c, d, 4, 2, 1)
        self.down2, self.half2 = Residual(d, d), nn.Conv2d(d, e, 4, 2, 1)
        self.middle = nn.Sequential(Residual(e, e), Residual(e, e))
        self.double2, self.up2 = nn.ConvTranspose2d(e, d, 4, 2, 1), Residual(e, d)
        self.double1, self.up1 = nn.ConvTranspose2d(d, c, 2, 2), Residual(d, c)
        self.out = nn.Conv2d(c, 3, 3, padding=1, padding_mode="reflect")

    def forward(self, x: Tensor) -> Tensor:
        first = self.down1(self.stem(x))
        second = self.down2(self.half1(first))
        y = self.middle(self.half2(second))
        y = self.up2(torch.cat([self.double2(y), second], 1))
        y = self.up1(torch.cat([self.double1(y), first], 1))
        out: Tensor = self.out(y)
        return out


class WaveNet(nn.Module):
    """Causal layers of one dimension, each with twice the dilation of the one before."""

    def __init__(self, width: int = 32, layers: int = 10) -> None:
        super().__init__()
        self.first = nn.Conv1d(1, width, 1)
        self.gates = nn.ModuleList(nn.Conv1d(width, 2 * width, 2, dilation=1 << i) for i in range(layers))
        self.mixes = nn.ModuleList(nn.Conv1d(width, width, 1) for _ in range(layers))
        self.last = nn.Sequential(nn.ReLU(), nn.Conv1d(width, 128, 1), nn.ReLU(), nn.Conv1d(128, 64, 1))

    def forward(self, x: Tensor) -> Tensor:
        x = self.first(x)
        skipped = torch.zeros_like(x)
        for i, (gate, mix) in enumerate(zip(self.gates, self.mixes, strict=True)):
            a, b = gate(F.pad(x, (1 << i, 0))).chunk(2, 1)
            y = mix(torch.tanh(a) * torch.sigmoid(b))
            x, skipped = x + y, skipped + y
        out: Tensor = self.last(skipped)
        return out


def _bottleneck(c: int, k: int, stride: int) -> nn.Module:
    return nn.Sequential(
        nn.Conv3d(c, 2 * c, 1, bias=False), nn.BatchNorm3d(2 * c), nn.ReLU(),
        nn.Conv3d(2 * c, 2 * c, 3, (1, stride, stride), 1, groups=2 * c, bias=False), nn.BatchNorm3d(2 * c), nn.SiLU(),
        nn.Conv3d(2 * c, k, 1, bias=False), nn.BatchNorm3d(k),
    )  # fmt: skip


class Video(nn.Module):
    """As X3D classifies videos: depthwise layers of three dimensions between 1x1 ones."""

    def __init__(self, width: int = 24) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv3d(3, width, (1, 3, 3), (1, 2, 2), (0, 1, 1), bias=False),
            nn.Conv3d(width, width, (5, 1, 1), padding=(2, 0, 0), groups=width, bias=False),
            nn.BatchNorm3d(width), nn.ReLU(),
            _bottleneck(width, width, 2), _bottleneck(width, 2 * width, 2), _bottleneck(2 * width, 2 * width, 1),
            nn.AdaptiveAvgPool3d(1), nn.Flatten(), nn.Linear(2 * width, 10),
        )  # fmt: skip

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.layers(x)
        return out


def _twice(c: int, k: int) -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(c, k, 3, padding=1, bias=False), nn.BatchNorm2d(k), nn.ReLU(inplace=True),
        nn.Conv2d(k, k, 3, padding=1, bias=False), nn.BatchNorm2d(k), nn.ReLU(inplace=True),
    )  # fmt: skip


class SegmentingUNet(nn.Module):
    """As images are segmented by one: two convolutions at each level, max pooling down, transposed convolutions up."""

    def __init__(self, widths: tuple[int, ...] = (64, 128, 256, 512, 1024), classes: int = 2) -> None:
        super().__init__()
        levels = list(pairwise(widths))
        self.first = _twice(3, widths[0])
        self.downs = nn.ModuleList(_twice(c, k) for c, k in levels)
        self.doubles = nn.ModuleList(nn.ConvTranspose2d(k, c, 2, 2) for c, k in reversed(levels))
        self.ups = nn.ModuleList(_twice(2 * c, c) for c, _ in reversed(levels))
        self.head = nn.Conv2d(widths[0], classes, 1)

    def forward(self, x: Tensor) -> Tensor:
        x, skips = self.first(x), list[Tensor]()
        for down in self.downs:
            skips.append(x)
            x = down(F.max_pool2d(x, 2))
        for double, up in zip(self.doubles, self.ups, strict=True):
            x = up(torch.cat([skips.pop(), double(x)], 1))
        out: Tensor = self.head(x)
        return out


class DenseLayers(nn.Module):
    """A mixed-scale dense network as one would write it: each layer reads a concatenation of all that there is. Its
    parameters are called as those of ``convwright.nn.MSDNet``."""

    def __init__(self, depth: int, channels: int = 1, classes: int = 2) -> None:
        super().__init__()
        dilations = [1 + number % 10 for number in range(depth)]
        self.layers = nn.ModuleList(
            nn.Conv2d(channels + number, 1, 3, padding=d, dilation=d) for number, d in enumerate(dilations)
        )
        self.last = nn.Conv2d(channels + depth, classes, 1)

    def forward(self, x: Tensor) -> Tensor:
        found = [x]
        for layer in self.layers:
            found.append(F.relu(layer(torch.cat(found, 1))))
        y: Tensor = self.last(torch.cat(found, 1))
        return y


# By name, with the shape of one input.
NETWORKS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "unet": (UNet, (3, 192, 256)),
    "unet512": (SegmentingUNet, (3, 512, 512)),
    "wavenet": (WaveNet, (1, 16000)),
    "video": (Video, (3, 13, 160, 160)),
}
