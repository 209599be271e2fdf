"""What a learned model of times is held against: recipes that others use, fitted to the same rows."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from common.timed_convolutions import Column, Convolutions
from numpy import float64
from numpy.typing import NDArray

# Fits to rows with times, and predicts other rows.
Baseline = Callable[[Convolutions, Column, Convolutions], Column]


def nn_meter(fitted: Convolutions, us: Column, asked: Convolutions) -> Column:
    """nn-Meter's recipe for convolutions on a GPU: a random forest on sizes, FLOPs and parameters, as it sets it."""
    from sklearn.ensemble import RandomForestRegressor

    forest = RandomForestRegressor(
        max_depth=80, n_estimators=550, min_samples_leaf=1, min_samples_split=2, max_features=5, random_state=10
    )
    predicted: Column = forest.fit(_counted(fitted), us).predict(_counted(asked))
    return predicted


def linear(fitted: Convolutions, us: Column, asked: Convolutions) -> Column:
    """Linear regression of the logarithm of time on the logarithms of sizes, FLOPs and bytes."""
    return _log_linear(_logs(fitted), us, _logs(asked))


def constant_rate(fitted: Convolutions, us: Column, asked: Convolutions) -> Column:
    """The same FLOPs in each µs, whatever the sizes."""
    return _scaled(fitted.flops, us, asked.flops)


def roofline(flops_per_us: float, bytes_per_us: float, bytes_each: int) -> Baseline:
    """FLOPs or bytes at the GPU's peak, whichever take longer, times one fitted factor."""

    def bound(given: Convolutions) -> Column:
        return np.maximum(given.flops / flops_per_us, given.read_and_written(bytes_each) / bytes_per_us)

    return lambda fitted, us, asked: _scaled(bound(fitted), us, bound(asked))


def linear_beside(
    fitted: Convolutions, fitted_reference: Column, us: Column, asked: Convolutions, asked_reference: Column
) -> Column:
    """The same linear regression with another device's time as one more feature."""
    known, wanted = (
        np.column_stack([_logs(given), np.log(reference)])
        for given, reference in ((fitted, fitted_reference), (asked, asked_reference))
    )
    return _log_linear(known, us, wanted)


def constant_ratio(fitted_reference: Column, us: Column, asked_reference: Column) -> Column:
    """Another device's time, times one fitted factor."""
    return _scaled(fitted_reference, us, asked_reference)


def _scaled(known: Column, us: Column, wanted: Column) -> Column:
    return wanted * float(np.median(us / known))


def _log_linear(known: NDArray[float64], us: Column, wanted: NDArray[float64]) -> Column:
    weights = np.linalg.lstsq(known, np.log(us), rcond=None)[0]
    return np.exp(wanted @ weights)


def _counted(given: Convolutions) -> NDArray[float64]:
    return np.column_stack([*given.columns().values(), given.flops / 2e6, given.parameters / 1e6])


def _logs(given: Convolutions) -> NDArray[float64]:
    logs = [np.log(column) for column in (given.N, given.C, given.K, given.H, given.R, given.stride, given.flops)]
    return np.column_stack([*logs, np.log(given.read_and_written(4)), given.depthwise, given.adds, np.ones(len(given))])
