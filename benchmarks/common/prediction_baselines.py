"""What predictions of candidates are held against: recipes that others use, given the same rows and the same split."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
from numpy import float64
from numpy.typing import NDArray

from convwright.core.candidate import Candidate
from convwright.core.problem import ConvProblem
from convwright.prediction.features import PARTS, Features, algorithm_of

Column = NDArray[float64]
# Fits to some rows and predicts others.
Baseline = Callable[["Rows", "Rows"], Column]
# An algorithm with fewer rows has no forest of its own.
_FEWEST = 10
_PRODUCTS, _OPERANDS = PARTS.index("products µs"), PARTS.index("operands µs")


@dataclass(frozen=True, slots=True, eq=False)
class Rows:
    """Candidates with what was measured, and what is computed from them: ``sizes`` of the problems, which every recipe
    has, and our features."""

    candidates: tuple[Candidate, ...]
    measured_us: Column
    sizes: NDArray[float64]
    features: Features
    algorithms: NDArray[Any]

    @classmethod
    def of(cls, candidates: tuple[Candidate, ...], measured_us: Column, features: Features) -> Rows:
        sizes = np.array([_sizes(each.problem) for each in candidates], dtype=np.float64)
        return cls(candidates, measured_us, sizes, features, np.array([algorithm_of(each) for each in candidates]))

    def at(self, rows: NDArray[Any]) -> Rows:
        found = self.features
        some = Features(found.names, found.rows[rows], found.physics_us[rows], found.parts[rows], found.known[rows])
        picked = tuple(self.candidates[int(row)] for row in rows)
        return Rows(picked, self.measured_us[rows], self.sizes[rows], some, self.algorithms[rows])


def _sizes(problem: ConvProblem) -> tuple[float, ...]:
    """Sizes, FLOPs and parameters, as nn-Meter has them, with the batch, the direction, the type and the layout."""
    direction = ("forward", "backward_data", "backward_weight").index(str(problem.direction))
    return (
        problem.n, problem.c, problem.k, problem.groups, problem.y.shape[-1], prod(problem.y.shape[2:]),
        prod(problem.taps), prod(problem.stride), problem.flops / 2e6, problem.w.numel / 1e6, problem.bytes / 1e6,
        problem.dtype.nbytes, direction, problem.x.strides[1] == 1, len(problem.operands),
    )  # fmt: skip


def nn_meter(fitted: Rows, asked: Rows) -> Column:
    """nn-Meter's recipe for a GPU: for each kernel a random forest on sizes, FLOPs and parameters, as it sets it. A
    kernel is an algorithm here; those with few rows share one forest."""
    predicted = _forest(fitted, asked)
    for name in np.unique(asked.algorithms):
        own, wanted = np.flatnonzero(fitted.algorithms == name), np.flatnonzero(asked.algorithms == name)
        if len(own) >= _FEWEST:
            predicted[wanted] = _forest(fitted.at(own), asked.at(wanted))
    return predicted


def _forest(fitted: Rows, asked: Rows) -> Column:
    from sklearn.ensemble import RandomForestRegressor

    forest = RandomForestRegressor(
        max_depth=80, n_estimators=550, min_samples_leaf=1, min_samples_split=2, max_features=5, random_state=10
    )
    found: Column = forest.fit(fitted.sizes, fitted.measured_us).predict(asked.sizes)
    return found


def linear(fitted: Rows, asked: Rows) -> Column:
    """Linear regression of the logarithm of time on the logarithms of sizes, FLOPs and bytes, and on the algorithm."""
    names = np.unique(fitted.algorithms)

    def described(rows: Rows) -> NDArray[float64]:
        algorithm = (rows.algorithms[:, None] == names).astype(np.float64)
        return np.hstack([np.log(np.maximum(rows.sizes, 1e-3)), algorithm, np.ones((len(rows.candidates), 1))])

    known = described(fitted)
    ridge = known.T @ known + 1e-2 * np.eye(known.shape[1])
    weights = np.linalg.solve(ridge, known.T @ np.log(fitted.measured_us))
    found: Column = np.exp(described(asked) @ weights)
    return found


def roofline(fitted: Rows, asked: Rows) -> Column:
    """Products or bytes at the device's peak, whichever take longer, times one fitted factor."""

    def bound(rows: Rows) -> Column:
        return np.maximum(rows.features.parts[:, _PRODUCTS], rows.features.parts[:, _OPERANDS])

    return _scaled(bound(fitted), fitted.measured_us, bound(asked))


def constant_rate(fitted: Rows, asked: Rows) -> Column:
    """The same FLOPs in each µs, whatever the sizes."""
    flops = _SIZES_FLOPS
    return _scaled(fitted.sizes[:, flops], fitted.measured_us, asked.sizes[:, flops])


def physics(fitted: Rows, asked: Rows) -> Column:
    """Our physical estimate, times one fitted factor."""
    return _scaled(fitted.features.physics_us, fitted.measured_us, asked.features.physics_us)


_SIZES_FLOPS = 8
BASELINES: dict[str, Baseline] = {
    "nn-Meter's recipe": nn_meter,
    "linear regression": linear,
    "our physics, uncorrected": physics,
    "roofline": roofline,
    "constant rate": constant_rate,
}


def _scaled(known: Column, measured_us: Column, wanted: Column) -> Column:
    return wanted * float(np.median(measured_us / np.maximum(known, 1e-9)))
