"""Random numbers for large operands: a block of them, again and again."""

from __future__ import annotations

from math import prod

import torch
from torch import Tensor

# Drawing 100 million numbers takes a CPU half a second, copying them a tenth of that. A kernel that reads a wrong
# element is found out if the right one differs from it. Here two elements are equal only if they lie a multiple of the
# block's length apart; that length is prime, so it divides no stride, no sum of a few of them, and no distance within
# an image's dimension of less than a quarter million. Powers of two, which strides are made of, would hide much.
BLOCK = 262_139


def normal(shape: tuple[int, ...], generator: torch.Generator, dtype: torch.dtype) -> Tensor:
    """Normally distributed numbers; of more than ``BLOCK`` the first so many are repeated."""
    count = prod(shape)
    block = torch.randn(min(count, BLOCK), generator=generator, device=generator.device, dtype=dtype)
    if count <= BLOCK:
        return block.reshape(shape)
    whole = torch.empty(count, device=generator.device, dtype=dtype)
    times, rest = divmod(count, BLOCK)
    whole[: times * BLOCK].view(times, BLOCK).copy_(block)
    whole[times * BLOCK :] = block[:rest]
    return whole.view(shape)
