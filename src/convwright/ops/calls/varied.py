"""A layer that is fed ever new shapes: PyTorch's own function serves it, and a call now and then is looked at."""

from __future__ import annotations

import torch
from torch import Tensor

# A look takes as long as a few short convolutions. The distance from one to the next doubles up to this. It is odd, so
# that of sizes which come in turn none is passed over at each look.
_MOST_BETWEEN = 251


class Varied:
    """Says which calls of a layer need no look. ``decided`` are the inputs' shapes for which something was chosen."""

    __slots__ = ("_calls", "_next_look", "decided")

    def __init__(self) -> None:
        self.decided: set[torch.Size] = set()
        self.look_soon()

    def look_soon(self) -> None:
        """Look at the next calls as if they were the first."""
        self._calls, self._next_look = 0, 1

    def passes(self, x: Tensor) -> bool:
        """Whether PyTorch's own function serves this call at once."""
        self._calls = calls = self._calls + 1
        if calls >= self._next_look:
            self._next_look = calls + min((calls - 1) | 1, _MOST_BETWEEN)
            return False
        return not self.decided or x.shape not in self.decided
