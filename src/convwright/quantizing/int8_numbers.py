"""Numbers in int8: a whole number from -127 to 127 times a scale."""

from __future__ import annotations

import torch
from torch import Tensor

LARGEST = 127
_LEAST_SCALE = torch.finfo(torch.float32).tiny


def rounded(x: Tensor, scale: Tensor) -> Tensor:
    """``x / scale`` rounded to the nearest whole number (to even in a tie) and clipped to ±127; still in fp32.

    >>> rounded(torch.tensor([0.5, 1.5, -2.6, 300.0]), torch.tensor(1.0)).tolist()
    [0.0, 2.0, -3.0, 127.0]
    """
    return x.float().div(scale).round_().clamp_(-LARGEST, LARGEST)


def scale_up_to(limit: float) -> Tensor:
    """The scale at which 127 represents ``limit``."""
    return torch.tensor(max(limit / LARGEST, _LEAST_SCALE), dtype=torch.float32)


def weight_in_int8(weight: Tensor) -> tuple[Tensor, Tensor]:
    """A weight (K, …) in int8, and for each output channel the scale at which 127 represents its largest element.

    >>> whole, scale = weight_in_int8(torch.tensor([[[1.0, -0.5]], [[0.0, 1270.0]]]))
    >>> whole.tolist(), scale.tolist()
    ([[[127, -64]], [[0, 127]]], [0.007874015718698502, 10.0])
    """
    scale = weight.abs().flatten(1).amax(1).div(LARGEST).float().clamp_(min=_LEAST_SCALE)
    each = scale.view(-1, *[1] * (weight.dim() - 1))
    return weight.double().div(each).round_().clamp_(-LARGEST, LARGEST).to(torch.int8), scale
