"""A residual network as model libraries write them: ``F.conv2d`` is reached through ``nn.Conv2d`` alone."""

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
        self.downsample: nn.Module | None = None
        if stride != 1 or c != k:
            self.downsample = nn.Sequential(nn.Conv2d(c, k, 1, stride, bias=False), nn.BatchNorm2d(k))

    def forward(self, x: Tensor) -> Tensor:
        y = self.bn2(self.conv2(self.relu(self.bn1(self.conv1(x)))))
        y = y + (x if self.downsample is None else self.downsample(x))
        made: Tensor = self.relu(y)
        return made


class ResNet(nn.Module):
    """ResNet-18 where ``width`` is 64 and ``blocks`` 2."""

    def __init__(self, width: int = 8, blocks: int = 1, classes: int = 10) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, width, 7, 2, 3, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.relu = nn.ReLU(inplace=True)
        self.maxpool = nn.MaxPool2d(3, 2, 1)
        sizes = [width, width, 2 * width, 4 * width, 8 * width]
        self.layers = nn.Sequential(
            *(
                Block(sizes[stage] if i == 0 else sizes[stage + 1], sizes[stage + 1], 2 if stage and i == 0 else 1)
                for stage in range(4)
                for i in range(blocks)
            )
        )
        self.avgpool = nn.AdaptiveAvgPool2d(1)
        self.fc = nn.Linear(8 * width, classes)

    def forward(self, x: Tensor) -> Tensor:
        x = self.maxpool(self.relu(self.bn1(self.conv1(x))))
        made: Tensor = self.fc(torch.flatten(self.avgpool(self.layers(x)), 1))
        return made


def trained(model: nn.Module, x: Tensor) -> list[Tensor]:
    """The output, all gradients and all buffers after a step."""
    x = x.clone().requires_grad_()
    y = model(x)
    y.square().sum().backward()
    gradients = [parameter.grad for parameter in model.parameters()]
    assert x.grad is not None
    return [y, x.grad, *(gradient for gradient in gradients if gradient is not None), *model.buffers()]
