"""Networks drawn at random: branches, dense blocks, gates, views, repeated outputs."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

_Step = Callable[[list[Tensor]], Tensor]


class RandomNetwork(nn.Module):
    """Each step computes one image from those before it; some of them are returned, and the input may be."""

    def __init__(self, seed: int, steps: int = 10) -> None:
        super().__init__()
        self._made_of = seed, steps
        self._random = Random(seed)
        torch.manual_seed(seed)
        self.layers = nn.ModuleList()
        self._channels = [4]
        self._steps = [self._step() for _ in range(steps)]
        last = len(self._steps)
        self._returned = [last, last, self._random.randrange(last), 0][: self._random.randint(1, 4)]
        for module in self.modules():
            if isinstance(module, nn.BatchNorm2d):
                module.running_mean.normal_()
                module.running_var.uniform_(0.5, 2.0)
                module.weight.data.uniform_(0.5, 1.5)
                module.bias.data.normal_()
        self.eval()

    def __deepcopy__(self, memo: dict[int, Any]) -> RandomNetwork:
        """Steps hold their layers, so a copy is made anew."""
        made = RandomNetwork(*self._made_of)
        for own, copied in zip(self.parameters(), made.parameters(), strict=True):
            copied.data = own.data.clone()
        for own, copied in zip(self.buffers(), made.buffers(), strict=True):
            copied.data = own.data.clone()
        return made

    def _layer(self, layer: nn.Module) -> nn.Module:
        self.layers.append(layer)
        return layer

    def _step(self) -> _Step:
        random = self._random
        at = random.randrange(max(len(self._channels) - 3, 0), len(self._channels))
        channels = self._channels[at]
        alike = [place for place, count in enumerate(self._channels) if count == channels]
        other = random.choice(alike)
        makers: dict[str, Callable[[], tuple[int, _Step]]] = {
            "conv": lambda: self._conv(at, channels),
            "another conv": lambda: self._conv(at, channels),
            "residual": lambda: (channels, lambda v: F.relu(v[at] + v[other])),
            "dense": lambda: (channels + self._channels[other], lambda v: torch.cat([v[at], v[other]], 1)),
            "gate": lambda: self._gate(at, channels),
            "activation": lambda: (channels, self._activation(at)),
            "pad": lambda: self._padded(at, channels),
            "scale": lambda: (channels, lambda v: v[at] * 0.5 - v[other]),
            "resize": lambda: (channels, lambda v: F.interpolate(F.avg_pool2d(v[at], 2), scale_factor=2)),
            "twice": lambda: (channels, lambda v: F.max_pool2d(v[at], 3, 1, 1) + F.max_pool2d(v[at], 3, 1, 1)),
        }
        made, step = makers[random.choice(list(makers))]()
        self._channels.append(made)
        return step

    def _activation(self, at: int) -> _Step:
        function = self._random.choice([F.relu, F.silu, F.hardswish, F.gelu, F.relu6, torch.sigmoid, F.leaky_relu])
        return lambda v: function(v[at])

    def _conv(self, at: int, channels: int) -> tuple[int, _Step]:
        random, made = self._random, self._random.choice([3, 4, 8])
        taps = random.choice([1, 3])
        groups = channels if made % channels == 0 and random.random() < 0.3 else 1
        conv = self._layer(
            nn.Conv2d(channels, made, taps, padding=taps // 2, groups=groups, bias=random.random() < 0.5)
        )
        norm = self._layer(nn.BatchNorm2d(made) if random.random() < 0.6 else nn.Identity())
        ends: _Step = random.choice([F.relu, F.silu, torch.tanh, lambda y: y])  # type: ignore[list-item]
        return made, lambda v: ends(norm(conv(v[at])))

    def _gate(self, at: int, channels: int) -> tuple[int, _Step]:
        squeeze = self._layer(nn.Conv2d(channels, channels, 1))
        return channels, lambda v: v[at] * torch.sigmoid(squeeze(v[at].mean((2, 3), keepdim=True)))

    def _padded(self, at: int, channels: int) -> tuple[int, _Step]:
        conv = self._layer(nn.Conv2d(channels, channels, 3))
        return channels, lambda v: conv(F.pad(v[at], (1, 1, 1, 1)))

    def forward(self, x: Tensor) -> dict[str, object]:
        values = [x]
        for step in self._steps:
            values.append(step(values))
        ends = [values[place] for place in self._returned]
        return {"images": tuple(ends), "flat": values[-1].flatten(1), "mean": values[-1].mean((2, 3))}
