"""The distance between two results, added up over many runs."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf, isnan, sqrt

from torch import Tensor


@dataclass(slots=True)
class Deviation:
    """Sums of squares: of the expected result, and of the difference.

    >>> import torch
    >>> off = Deviation()
    >>> off.add(torch.tensor([3.0, 4.5]), torch.tensor([3.0, 4.0]))
    >>> off.relative_l2
    0.1
    """

    meant: float = 0.0
    off: float = 0.0

    def add(self, y: Tensor, meant: Tensor) -> None:
        if y.shape != meant.shape:
            self.off = inf
            return
        exact = meant.detach().double()
        self.meant += float(exact.square().sum())
        self.off += float((y.detach().double() - exact).square().sum())

    @property
    def relative_l2(self) -> float:
        """Infinite where a result is none, or is something where nothing is meant."""
        if not self.off:
            return 0.0
        error = sqrt(self.off / self.meant) if self.meant and not isnan(self.off) else inf
        return inf if isnan(error) else error
