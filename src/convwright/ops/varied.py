"""A layer that is fed ever new shapes: PyTorch's own function serves it, and a call now and then is looked at."""

from __future__ import annotations

import torch
from torch import Tensor

# A look takes as long as a short convolution, so it is taken at one call in so many; a prime, since sizes that come
# in turn would hide behind each other.
_LOOK_EVERY = 31
_LOOKS_AT_FIRST = 8


class Varied:
    """Says which calls of a layer need no look. ``decided`` are the inputs' shapes for which something was chosen."""

    __slots__ = ("_calls", "decided")

    def __init__(self) -> None:
        self.decided: set[torch.Size] = set()
        self._calls = 0

    def passes(self, x: Tensor) -> bool:
        """Whether PyTorch's own function serves this call at once."""
        self._calls = calls = self._calls + 1
        if calls <= _LOOKS_AT_FIRST or calls % _LOOK_EVERY == 0:
            return False
        return not self.decided or x.shape not in self.decided
