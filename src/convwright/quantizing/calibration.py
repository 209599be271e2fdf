"""The range of inputs that int8 represents, from samples."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from math import isfinite

import torch
from torch import Tensor

from convwright.quantizing.int8_numbers import rounded, scale_up_to

# Limits that are tried, of the largest input downwards: eight for each halving, down to a sixteenth.
_PER_HALVING, _HALVINGS = 8, 4


class Ranges(StrEnum):
    """How to choose the limit of a layer's inputs. Larger inputs are clipped to it.

    ``largest`` is the largest magnitude in the samples, so none of them is clipped. ``mse`` minimises the mean squared
    error of the inputs over all samples: a few very large values are clipped, and all others get a finer scale.
    """

    MSE = "mse"
    LARGEST = "largest"


@dataclass(slots=True)
class Seen:
    """How often the samples called a layer, and its largest input; infinite if an input was infinite or NaN."""

    calls: int = 0
    largest: float = 0.0

    def see(self, x: Tensor) -> None:
        self.calls += 1
        if x.numel():
            largest = float(x.abs().amax())
            self.largest = max(self.largest, largest if isfinite(largest) else float("inf"))


class CutOff:
    """The squared error of a layer's inputs in int8, for each limit that is tried.

    >>> cut = CutOff(1000.0)
    >>> cut.see(torch.cat([torch.linspace(-100, 100, 100_000), torch.tensor([1000.0])]))
    >>> round(cut.best)
    648
    """

    def __init__(self, largest: float) -> None:
        self._limits = [largest * 2 ** (-step / _PER_HALVING) for step in range(_PER_HALVING * _HALVINGS + 1)]
        self._errors = torch.zeros(len(self._limits), dtype=torch.float64)

    def see(self, x: Tensor) -> None:
        errors = [_squared_error(x, scale_up_to(limit).to(x.device)) for limit in self._limits]
        self._errors += torch.stack(errors).cpu()

    @property
    def best(self) -> float:
        """The limit with the least error; of several the largest."""
        return self._limits[int(self._errors.argmin())]


def _squared_error(x: Tensor, scale: Tensor) -> Tensor:
    return rounded(x, scale).mul_(scale).sub_(x).square_().sum(dtype=torch.float64)
