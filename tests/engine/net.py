"""Models that are written in the tests that look at them."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

X = torch.randn(2, 3, 9, 9)


class Net(nn.Module):
    """A model whose forward pass is a function that a test gives."""

    def __init__(self, forward: Any, **parts: Any) -> None:
        super().__init__()
        self.body = forward
        for name, part in parts.items():
            setattr(self, name, part)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self.body(self, *args, **kwargs)
