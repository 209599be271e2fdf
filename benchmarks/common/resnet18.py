"""ResNet-18 as model libraries write it, for benchmarks of unmodified models."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class Block(nn.Module):
    def __init__(self, c: int, k: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(c, k, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(k)
        self.conv2 = nn.Conv2d(k, k, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(k)
        self.relu = nn.ReLU(inplace=True)
        self.downsample = None
        if stride != 1 or c != k:
            self.downsample = nn.Sequential(nn.Conv2d(c, k, 1, stride, bias=False), nn.BatchNorm2d(k))

    def forward(self, x: Tensor) -> Tensor:
        y = self.bn2(self.conv2(self.relu(self.bn1(self.conv1(x)))))
        out: Tensor = self.relu(y + (x if self.downsample is None else self.downsample(x)))
        return out


class ResNet18(nn.Module):
    """``width`` 64 is the usual one; it has 20 convolutions."""

    def __init__(self, width: int = 64) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, width, 7, 2, 3, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.relu = nn.ReLU(inplace=True)
        self.maxpool = nn.MaxPool2d(3, 2, 1)
        sizes = [width << max(stage - 1, 0) for stage in range(5)]
        self.layers = nn.Sequential(
            *(
                Block(sizes[stage + i], sizes[stage + 1], 2 if stage and i == 0 else 1)
                for stage in range(4)
                for i in range(2)
            )
        )
        self.avgpool = nn.AdaptiveAvgPool2d(1)
        self.fc = nn.Linear(sizes[-1], 1000)

    def forward(self, x: Tensor) -> Tensor:
        x = self.maxpool(self.relu(self.bn1(self.conv1(x))))
        out: Tensor = self.fc(torch.flatten(self.avgpool(self.layers(x)), 1))
        return out
