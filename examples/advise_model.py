"""Models to try `convwright advise` and `convwright tune` on; nothing but PyTorch is needed.

    convwright advise examples/advise_model.py:resnet_like
    convwright tune examples/advise_model.py:small --mode quick

A function that such a command is given takes no arguments and returns a model and an example of its input.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn


class BasicBlock(nn.Module):
    """Two 3x3 convolutions around which the input is carried, as in ResNet-18 and ResNet-34."""

    def __init__(self, channels: int, width: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(channels, width, 3, stride, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.relu = nn.ReLU(inplace=True)
        self.conv2 = nn.Conv2d(width, width, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(width)
        self.shortcut = nn.Sequential()
        if stride > 1 or channels != width:
            self.shortcut = nn.Sequential(nn.Conv2d(channels, width, 1, stride, bias=False), nn.BatchNorm2d(width))

    def forward(self, x: Tensor) -> Tensor:
        y = self.relu(self.bn1(self.conv1(x)))
        y = self.bn2(self.conv2(y))
        return self.relu(y + self.shortcut(x))


class ResNetLike(nn.Module):
    """A stem, stages of blocks of growing width, and a linear classifier."""

    def __init__(self, widths: tuple[int, ...], blocks: int, classes: int) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, widths[0], 7, stride=2, padding=3, bias=False)
        self.bn = nn.BatchNorm2d(widths[0])
        self.pool = nn.MaxPool2d(3, stride=2, padding=1)
        stages, channels = [], widths[0]
        for number, width in enumerate(widths):
            for block in range(blocks):
                stages.append(BasicBlock(channels, width, stride=2 if number and not block else 1))
                channels = width
        self.stages = nn.Sequential(*stages)
        self.head = nn.Linear(channels, classes)

    def forward(self, x: Tensor) -> Tensor:
        y = self.pool(torch.relu(self.bn(self.stem(x))))
        return self.head(self.stages(y).mean((2, 3)))


def resnet_like() -> tuple[nn.Module, Tensor]:
    """The shape of ResNet-18 with one image of 224 × 224, for inference."""
    torch.manual_seed(0)
    return ResNetLike((64, 128, 256, 512), blocks=2, classes=1000).eval(), torch.randn(1, 3, 224, 224)


def small() -> tuple[nn.Module, Tensor]:
    """Two stages with one block each and images of 32 × 32; 30 channels are what no hardware likes."""
    torch.manual_seed(0)
    return ResNetLike((16, 30), blocks=1, classes=10).eval(), torch.randn(2, 3, 32, 32)


def small_in_training() -> tuple[nn.Module, Tensor]:
    """The small model as it is while it is trained."""
    model, images = small()
    return model.train(), images
