"""Whether a row is similar to those that a model was fitted to.

The score of a row is its distance to the nearest reference row, plus how far its worst feature lies outside of their
ranges, both in standard deviations. Other rows calibrate the limit: a new row like them is flagged with a probability
of at most ``false_alarms``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from math import isfinite
from typing import TYPE_CHECKING, Any

from convwright.errors import BadInput
from convwright.prediction.boosted_trees import checked_rows
from convwright.prediction.folds import fold_of
from convwright.prediction.intervals import conformal_quantile

if TYPE_CHECKING:
    from numpy import bool_, float64
    from numpy.typing import NDArray

# One row in three calibrates. More reference rows cost time and hardly sharpen the distance.
_FOLDS, _MOST_REFERENCES = 3, 3000
# For a feature that never varied, so that any other value is far away.
LEAST_DEVIATION = 1e-3
_AT_ONCE = 1024


@dataclass(frozen=True, eq=False)
class Domain:
    """The standardised reference rows, and the largest ``score`` inside the domain."""

    centre: NDArray[float64]
    deviation: NDArray[float64]
    references: NDArray[float64]
    limit: float
    false_alarms: float

    def contains(self, rows: NDArray[float64]) -> NDArray[bool_]:
        """Whether each row is inside."""
        inside: NDArray[bool_] = self.score(rows) <= self.limit
        return inside

    def score(self, rows: NDArray[float64]) -> NDArray[float64]:
        """The distance of each row from the reference rows."""
        import numpy as np

        rows = (checked_rows(rows, len(self.centre)) - self.centre) / self.deviation
        lowest, highest = self._ranges
        outside = np.maximum(np.maximum(lowest - rows, rows - highest), 0.0).max(axis=1)
        parts = [self._nearest(rows[begin : begin + _AT_ONCE]) for begin in range(0, len(rows), _AT_ONCE)]
        score: NDArray[float64] = outside + np.concatenate([np.empty(0), *parts])
        return score

    def _nearest(self, rows: NDArray[float64]) -> NDArray[float64]:
        import numpy as np

        squares = squared_distances(rows, self._squares, rows @ self.references.T).min(axis=1)
        nearest: NDArray[float64] = np.sqrt(squares / rows.shape[1])
        return nearest

    @cached_property
    def _ranges(self) -> tuple[NDArray[float64], NDArray[float64]]:
        """The lowest and the highest of each feature."""
        return self.references.min(axis=0), self.references.max(axis=0)

    @cached_property
    def _squares(self) -> NDArray[float64]:
        """The squared length of each reference row."""
        squares: NDArray[float64] = (self.references**2).sum(axis=1)
        return squares

    def to_arrays(self) -> dict[str, NDArray[float64]]:
        """The arrays that ``from_arrays`` takes besides the record of ``to_json``."""
        return {"centre": self.centre, "deviation": self.deviation, "references": self.references}

    def to_json(self) -> dict[str, float]:
        return {"limit": self.limit, "false_alarms": self.false_alarms}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, NDArray[Any]], record: Mapping[str, Any]) -> Domain:
        import numpy as np

        try:
            centre, deviation, references = (np.asarray(arrays[name], np.float64) for name in _ARRAYS)
            limit, false_alarms = float(record["limit"]), float(record["false_alarms"])
        except (KeyError, TypeError, ValueError):
            raise BadInput(f"a domain needs the arrays {', '.join(_ARRAYS)} and a limit") from None
        shaped = centre.shape == deviation.shape == references.shape[1:] and references.ndim == 2
        finite = all(np.isfinite(each).all() for each in (centre, deviation, references)) and isfinite(limit)
        if not (shaped and finite and len(references) and (deviation > 0).all()):
            raise BadInput(
                "a domain's reference rows must be a matrix of finite numbers that fits its centre, got "
                f"{references.shape}"
            )
        return cls(centre, deviation, references, limit, false_alarms)


def squared_distances(
    rows: NDArray[float64], squares: NDArray[float64], products: NDArray[float64]
) -> NDArray[float64]:
    """The squared distances of ``rows`` and others, of which the squared lengths and the scalar products are given."""
    import numpy as np

    found: NDArray[float64] = np.maximum((rows**2).sum(axis=1)[:, None] + squares - 2 * products, 0.0)
    return found


_ARRAYS = ("centre", "deviation", "references")


def fit_domain(rows: NDArray[float64], groups: NDArray[Any], *, false_alarms: float = 0.05) -> Domain:
    """The domain of rows. Rows of one group, such as one problem, are all references or all calibrate."""
    import numpy as np

    rows = checked_rows(rows, np.asarray(rows).shape[-1])
    calibrates = fold_of(groups, _FOLDS) == 0
    if calibrates.all() or not calibrates.any():
        raise BadInput(f"a domain needs rows of at least {_FOLDS} groups, got {len(np.unique(groups))}")
    centre, deviation = rows.mean(axis=0), np.maximum(rows.std(axis=0), LEAST_DEVIATION)
    references = (rows[~calibrates] - centre) / deviation
    picked = np.random.default_rng(0).permutation(len(references))[:_MOST_REFERENCES]
    open_ = Domain(centre, deviation, references[picked], np.inf, false_alarms)
    limit = conformal_quantile(open_.score(rows[calibrates]), 1 - false_alarms)
    return Domain(centre, deviation, references[picked], min(limit, float(np.finfo(np.float64).max)), false_alarms)
