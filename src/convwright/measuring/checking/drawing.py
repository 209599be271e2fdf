"""Random numbers for large operands: one block, repeated."""

from __future__ import annotations

from math import prod

import torch
from torch import Tensor

# Drawing 100 million numbers takes a CPU half a second, copying them a tenth of that. A kernel that reads a wrong
# element is detected only if the right one differs from it. Here two elements are equal only if their distance is a
# multiple of the block's length. That length is prime, so it divides no stride, no sum of a few strides, and no
# distance within an image dimension below a quarter million. A power of two, like most strides, would hide many errors.
BLOCK = 262_139


def normal(shape: tuple[int, ...], generator: torch.Generator, dtype: torch.dtype) -> Tensor:
    """Normally distributed numbers; above ``BLOCK`` numbers the block is repeated."""
    count = prod(shape)
    block = torch.randn(min(count, BLOCK), generator=generator, device=generator.device, dtype=dtype)
    if count <= BLOCK:
        return block.reshape(shape)
    whole = torch.empty(count, device=generator.device, dtype=dtype)
    times, rest = divmod(count, BLOCK)
    whole[: times * BLOCK].view(times, BLOCK).copy_(block)
    whole[times * BLOCK :] = block[:rest]
    return whole.view(shape)
