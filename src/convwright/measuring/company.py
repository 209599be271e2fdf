"""What else a host does in a network between two convolutions: other layers, whose code and data fill its caches."""

from __future__ import annotations

import torch
from torch import nn

_CHANNELS, _SIZE = 8, 4


class Company:
    """A call of some layers that are not convolutions, so small that the host is all that they take.

    Alone in a loop a convolution of a small image took an H200's host 16 µs; within a MobileNet V3 it took 12 to 35.
    """

    def __init__(self, device: torch.device | str) -> None:
        self._x = torch.zeros(1, _CHANNELS, _SIZE, _SIZE, device=device)
        layers = nn.BatchNorm2d(_CHANNELS), nn.Hardswish(), nn.AvgPool2d(2), nn.Flatten(1)
        # A product of matrices would load a library that the user may have no need of.
        rest = nn.LayerNorm(_CHANNELS * (_SIZE // 2) ** 2), nn.ReLU()
        self._model = nn.Sequential(*layers, *rest).eval().to(device)

    @torch.no_grad()
    def __call__(self) -> object:
        return self._model(self._x + 1)
