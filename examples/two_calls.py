"""Two ways of doing the same, for `convwright time`: which is faster here, and by how much?

    convwright time examples/two_calls.py:nchw examples/two_calls.py:nhwc

A function that this command is given takes no arguments. One that returns a tensor says by it where it runs.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
torch.manual_seed(0)
X = torch.randn(4, 64, 28, 28, device=DEVICE)
W = torch.randn(64, 64, 3, 3, device=DEVICE)
X_LAST, W_LAST = (tensor.contiguous(memory_format=torch.channels_last) for tensor in (X, W))


def nchw() -> Tensor:
    """Channels first, as PyTorch's tensors are by default."""
    return F.conv2d(X, W, padding=1)


def nhwc() -> Tensor:
    """Channels last, without the copies that it takes to get there."""
    return F.conv2d(X_LAST, W_LAST, padding=1)
