"""A module whose forward is ours, and the same of PyTorch's own function."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn
from torch.nn import functional as F

import convwright as cw
from eager.prefer import randn


class Layer(nn.Module):
    def __init__(self, **rest: Any) -> None:
        super().__init__()
        self.weight = nn.Parameter(randn(6, 4, 3, 3, seed=1))
        self.bias = nn.Parameter(randn(6, seed=2))
        self.rest = rest

    def forward(self, x: Tensor) -> Tensor:
        return cw.conv2d(x, self.weight, self.bias, **self.rest)

    def plain(self, x: Tensor) -> Tensor:
        rest = dict(self.rest)
        relu = rest.pop("activation", None) == "relu"
        y = F.conv2d(x, self.weight, self.bias, **rest)
        return y.relu() if relu else y
