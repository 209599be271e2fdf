"""Shapes in place of examples: only sizes matter for the time of a convolution."""

from __future__ import annotations

from numbers import Real
from typing import Any

import torch
from torch import Tensor, nn

from convwright.errors import BadInput
from convwright.naming import is_whole

_SEED = 0


def example_of(model: Any, example: object) -> object:
    """The example; for a shape, a tensor of random numbers of that shape.

    >>> example_of(nn.Conv2d(3, 4, 3, dtype=torch.float64), (1, 3, 8, 8)).dtype
    torch.float64
    """
    if not isinstance(example, tuple | list) or not example or not all(isinstance(size, Real) for size in example):
        return example
    if not all(is_whole(size) and size > 0 for size in example):
        raise BadInput(f"a shape as an example must have whole numbers above 0, got {tuple(example)}")
    return random_input(model, tuple(map(int, example)))


def random_input(model: Any, shape: tuple[int, ...]) -> Tensor:
    """Random numbers in the dtype of the model's weights and on their device, the same at each call."""
    weights = model.parameters() if isinstance(model, nn.Module) else ()
    first = next((each for each in weights if each.is_floating_point()), torch.empty(0))
    return torch.randn(shape, generator=torch.Generator().manual_seed(_SEED)).to(first.device, first.dtype)
