"""A smooth function of features, by kernel ridge regression among rows of one kind; trees are not smooth.

``row_distance`` learns, for all kinds together, how much each feature counts in the distance of rows. Prediction needs
only numpy.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from convwright.errors import BadInput
from convwright.prediction.boosted_trees import checked_rows
from convwright.prediction.domain import LEAST_DEVIATION, squared_distances
from convwright.prediction.row_distance import learned_distance

if TYPE_CHECKING:
    from numpy import float16, float64, int32
    from numpy.typing import NDArray

_NUMBERS = ("centre", "deviation", "scale", "weights", "means")
_PLACES = ("columns", "apart", "starts")
_ARRAYS = (*_NUMBERS, *_PLACES, "references")
# Features are clipped at this many standard deviations from the mean.
_FURTHEST = 4.0
# A kind with fewer rows is predicted by rows of all kinds.
_FEWEST = 8
# The most references: of one kind, and of all kinds together.
_MOST, _OF_ALL = 4000, 1500
# Features that count less than this share of the most important one are left out.
_LEAST_SHARE = 0.01
_AT_ONCE = 2048
# A target with this error, when the others of its kind predict its logarithm, counts half.
_LARGE_ERROR = 0.5


@dataclass(frozen=True, eq=False)
class SmoothCorrection:
    """Uses the features ``columns`` of a row: minus ``centre``, in units of ``deviation``, times ``scale``.

    * ``references`` are such rows. Those of kind ``i`` start at ``starts[i]``. Kind 0 has some of all kinds, for rows
      of no other kind.
    * A row is of kind ``i`` if its column ``apart[i - 1]`` is not 0.
    * A prediction is the mean of the row's kind plus the ``weights`` of its references, each times a Matérn kernel of
      the distance and ``linear`` times the scalar product.
    """

    features: int
    columns: NDArray[int32]
    centre: NDArray[float64]
    deviation: NDArray[float64]
    scale: NDArray[float64]
    apart: NDArray[int32]
    starts: NDArray[int32]
    references: NDArray[float16]
    weights: NDArray[float64]
    means: NDArray[float64]
    linear: float

    def predict(self, rows: NDArray[float64]) -> NDArray[float64]:
        """One number for each row."""
        import numpy as np

        rows = checked_rows(rows, self.features)
        kinds = kinds_of(rows, self.apart)
        kinds[np.diff(self.starts)[kinds] == 0] = 0
        scaled = np.clip((rows[:, self.columns] - self.centre) / self.deviation, -_FURTHEST, _FURTHEST) * self.scale
        predicted: NDArray[float64] = self.means[kinds]
        order = np.argsort(kinds, kind="stable")
        for some in np.split(order, np.flatnonzero(np.diff(kinds[order])) + 1):
            for begin in range(0, len(some), _AT_ONCE):
                here = some[begin : begin + _AT_ONCE]
                kind = slice(*self.starts[kinds[here[0]] :][:2])
                references, squares = self._exact
                alike = likeness(scaled[here], references[kind], squares[kind], self.linear)
                predicted[here] += alike @ self.weights[kind]
        return predicted

    @cached_property
    def _exact(self) -> tuple[NDArray[float64], NDArray[float64]]:
        """The references in float64, and the squared length of each."""
        import numpy as np

        references = self.references.astype(np.float64)
        return references, (references**2).sum(axis=1)

    def to_arrays(self) -> dict[str, NDArray[Any]]:
        """The arrays that ``from_arrays`` takes besides the record of ``to_json``."""
        return {name: getattr(self, name) for name in _ARRAYS}

    def to_json(self) -> dict[str, float]:
        return {"features": self.features, "linear": self.linear}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, NDArray[Any]], record: Mapping[str, Any]) -> SmoothCorrection:
        import numpy as np

        try:
            read: dict[str, Any] = {name: np.asarray(arrays[name], np.float64) for name in _NUMBERS}
            read |= {name: np.asarray(arrays[name], np.int32) for name in _PLACES}
            read["references"] = np.asarray(arrays["references"], np.float16)
            made = cls(features=int(record["features"]), linear=float(record["linear"]), **read)
        except (KeyError, TypeError, ValueError, OverflowError):
            raise BadInput(f"a smooth correction needs the arrays {', '.join(_ARRAYS)} and their record") from None
        made._check()
        return made

    def _check(self) -> None:
        """Make sure that a prediction is a number and reads only inside the arrays."""
        import numpy as np

        if not all(getattr(self, name).ndim == 1 for name in (*_NUMBERS, *_PLACES)):
            raise BadInput("the arrays of a smooth correction do not fit each other: one has rows")
        if not np.isfinite([self.linear, *(np.abs(getattr(self, name)).max(initial=0.0) for name in _ARRAYS)]).all():
            raise BadInput("a smooth correction needs finite numbers")
        count, width, kinds = len(self.weights), len(self.columns), len(self.apart)
        fits = (
            self.references.shape == (count, width)
            and self.centre.shape == self.deviation.shape == self.scale.shape == (width,)
            and (self.deviation > 0).all()
            and all(((each >= 0) & (each < self.features)).all() for each in (self.columns, self.apart))
            and self.means.shape == (kinds + 1,)
            and self.starts.shape == (kinds + 2,)
            and (np.diff(self.starts) >= 0).all()
            and (self.starts[0], self.starts[-1]) == (0, count)
        )
        if not fits:
            raise BadInput(f"the arrays of a smooth correction do not fit each other: {count} reference rows")


def fit_smooth_correction(
    rows: NDArray[float64], targets: NDArray[float64], apart: Sequence[int] = ()
) -> SmoothCorrection:
    """Fit a function to ``targets``, one for each row. Rows are of one kind if the same of the columns ``apart`` is not
    0."""
    import numpy as np

    rows = checked_rows(rows, np.asarray(rows).shape[-1])
    places = np.array(apart, dtype=np.int32)
    kinds = kinds_of(rows, places)
    centre, deviation = rows.mean(axis=0), np.maximum(rows.std(axis=0), LEAST_DEVIATION)
    standard = np.clip((rows - centre) / deviation, -_FURTHEST, _FURTHEST)
    learned = learned_distance(standard, targets, kinds)
    columns = np.flatnonzero(learned.scale >= _LEAST_SHARE * learned.scale.max()).astype(np.int32)
    scaled = (standard[:, columns] * learned.scale[columns]).astype(np.float16)
    random, picked, weights, means = np.random.default_rng(0), [], [], []
    for kind in range(len(places) + 1):
        of_kind = _references(kinds, kind, random)
        mean = float(np.median(targets[of_kind])) if len(of_kind) else 0.0
        own = scaled[of_kind].astype(np.float64)
        alike = likeness(own, own, (own**2).sum(axis=1), learned.linear)
        weights.append(_weights(alike, learned.scatter, targets[of_kind] - mean))
        picked.append(of_kind)
        means.append(mean)
    starts = np.cumsum([0, *map(len, picked)]).astype(np.int32)
    return SmoothCorrection(
        rows.shape[1], columns, centre[columns], deviation[columns], learned.scale[columns], places, starts,
        scaled[np.concatenate(picked)], np.concatenate(weights), np.array(means), learned.linear,
    )  # fmt: skip


def _weights(alike: NDArray[float64], scatter: float, targets: NDArray[float64]) -> NDArray[Any]:
    """The weights of references. A target that all others predict badly counts less: it scatters more."""
    import numpy as np

    inverse = np.linalg.inv(alike + scatter * np.eye(len(targets)))
    off = inverse @ targets / inverse.diagonal()
    scatters = scatter * (1 + (off / _LARGE_ERROR) ** 2)
    return np.linalg.solve(alike + np.diag(scatters), targets)


def _references(kinds: NDArray[Any], kind: int, random: Any) -> NDArray[Any]:
    """References for a kind; empty if it has too few rows."""
    import numpy as np

    if kind == 0:
        is_all = not kinds.any()
        return np.sort(random.permutation(len(kinds))[: _MOST if is_all else _OF_ALL])
    rows = np.flatnonzero(kinds == kind)
    return np.sort(random.permutation(rows)[:_MOST]) if len(rows) >= _FEWEST else rows[:0]


def kinds_of(rows: NDArray[float64], apart: NDArray[int32]) -> NDArray[Any]:
    """The kind of each row, from 1; 0 for rows of no kind."""
    import numpy as np

    if not len(apart):
        return np.zeros(len(rows), dtype=np.intp)
    named = rows[:, apart] != 0
    return np.where(named.any(axis=1), named.argmax(axis=1) + 1, 0)


def likeness(
    rows: NDArray[float64], others: NDArray[float64], squares: NDArray[float64], linear: float
) -> NDArray[float64]:
    """The kernel of two sets of scaled rows; ``squares`` are the squared lengths of the others. It is a Matérn kernel
    of smoothness 3/2, steep enough for times that bend at each new wave of tiles, plus a linear term, which
    extrapolates."""
    import numpy as np

    products = rows @ others.T
    scaled = np.sqrt(3 * squared_distances(rows, squares, products))
    alike: NDArray[float64] = (1 + scaled) * np.exp(-scaled) + linear * products
    return alike
