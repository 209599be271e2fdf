"""A smooth function through few rows, by kernel ridge regression: what trees, which jump, lack between rows.

Far from all rows it is their mean. It needs numpy alone, and time that grows with the cube of the rows.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import product
from math import inf
from typing import TYPE_CHECKING, Any

from convwright.errors import BadInput
from convwright.prediction.boosted_trees import checked_rows
from convwright.prediction.domain import LEAST_DEVIATION, distances

if TYPE_CHECKING:
    from numpy import float64
    from numpy.typing import NDArray

_ARRAYS = ("centre", "deviation", "references", "weights")
# Widths of the kernel, in typical distances between rows, and shares of the variance that are taken for scatter.
_WIDTHS, _SCATTERS = (0.5, 1.0, 2.0, 4.0, 8.0), (0.01, 0.03, 0.1, 0.3)
_AT_ONCE = 2048


@dataclass(frozen=True, slots=True, eq=False)
class SmoothCorrection:
    """``references`` are standardised rows; a prediction is ``mean`` plus their ``weights``, each times a Matérn kernel
    of the distance."""

    centre: NDArray[float64]
    deviation: NDArray[float64]
    references: NDArray[float64]
    weights: NDArray[float64]
    width: float
    mean: float

    def predict(self, rows: NDArray[float64]) -> NDArray[float64]:
        """One number for each row."""
        import numpy as np

        rows = (checked_rows(rows, len(self.centre)) - self.centre) / self.deviation
        parts = [
            _kernel(distances(rows[begin : begin + _AT_ONCE], self.references) / self.width) @ self.weights
            for begin in range(0, len(rows), _AT_ONCE)
        ]
        predicted: NDArray[float64] = self.mean + np.concatenate([np.empty(0), *parts])
        return predicted

    def to_arrays(self) -> dict[str, NDArray[float64]]:
        """What ``from_arrays`` takes beside the record of ``to_json``."""
        return {name: getattr(self, name) for name in _ARRAYS}

    def to_json(self) -> dict[str, float]:
        return {"width": self.width, "mean": self.mean}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, NDArray[Any]], record: Mapping[str, Any]) -> SmoothCorrection:
        import numpy as np

        try:
            centre, deviation, references, weights = (np.asarray(arrays[name], np.float64) for name in _ARRAYS)
            width, mean = float(record["width"]), float(record["mean"])
        except (KeyError, TypeError, ValueError):
            raise BadInput(f"a smooth correction needs the arrays {', '.join(_ARRAYS)}, a width and a mean") from None
        shaped = references.shape == (*weights.shape, *centre.shape) and centre.shape == deviation.shape
        if not (shaped and references.ndim == 2 and width > 0 and (deviation > 0).all()):
            raise BadInput(
                f"the arrays of a smooth correction do not fit each other: {references.shape} reference rows"
            )
        return cls(centre, deviation, references, weights, width, mean)


def fit_smooth_correction(rows: NDArray[float64], targets: NDArray[float64]) -> SmoothCorrection:
    """The width and the scatter are those that predict each row best from all others."""
    import numpy as np

    rows = checked_rows(rows, np.asarray(rows).shape[-1])
    centre, deviation = rows.mean(axis=0), np.maximum(rows.std(axis=0), LEAST_DEVIATION)
    references, mean = (rows - centre) / deviation, float(targets.mean())
    between = distances(references, references)
    typical = float(np.median(between)) or 1.0
    best, least = (np.zeros(len(rows)), typical), inf
    for width, scatter in product(_WIDTHS, _SCATTERS):
        kernel = _kernel(between / (width * typical))
        inverse = np.linalg.inv(kernel + scatter * np.eye(len(rows)))
        weights = inverse @ (targets - mean)
        left_out = float(np.mean((weights / np.diag(inverse)) ** 2))  # what each row would miss, if it were not there
        if left_out < least:
            best, least = (weights, width * typical), left_out
    return SmoothCorrection(centre, deviation, references, best[0], best[1], mean)


def _kernel(apart: NDArray[float64]) -> NDArray[float64]:
    """Matérn's, of smoothness 3/2: steep enough for times that bend at each new wave of tiles."""
    import numpy as np

    scaled = 3**0.5 * apart
    kernel: NDArray[float64] = (1 + scaled) * np.exp(-scaled)
    return kernel
