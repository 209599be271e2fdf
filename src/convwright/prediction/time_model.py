"""A learned model of one device's times: physics, then a correction, with intervals and a domain.

Two functions learn ``log(measured / physics)`` from features, and the weighted mean of their results counts. One is
smooth. The other consists of learned rates, or of trees where rows are few or have no parts. A row is a pair of
features and a physical estimate, which the caller provides.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from convwright.core.record import Record
from convwright.errors import BadInput
from convwright.prediction.boosted_trees import BoostedTrees, TreeSettings, fit_boosted_trees
from convwright.prediction.domain import Domain, fit_domain
from convwright.prediction.folds import fold_of
from convwright.prediction.intervals import ConformalIntervals, calibrate
from convwright.prediction.learned_rates import LearnedRates, fit_learned_rates
from convwright.prediction.smooth_correction import SmoothCorrection, fit_smooth_correction

if TYPE_CHECKING:
    from numpy import bool_, float64
    from numpy.typing import NDArray

SCHEMA = "convwright time model 2"
FOLDS = 5
# From this many rows one of the five folds measures the error well enough; the others would cost minutes.
_MANY = 2000
# On 24,459 candidates of an H200 the median error is 16.0 % with the smooth function alone, 16.8 % with rates alone,
# 15.0 % with both and 17.3 % with the smooth function and trees; the mean error is 29.6, 30.5, 27.2 and 29.3 %.
_SHARE_OF_SMOOTH = 0.6
_FEW_ROWS = TreeSettings()
_MANY_ROWS = TreeSettings(
    trees=400, leaves=127, learning_rate=0.1, features_per_split=0.5, losses=("squared_error",), members=1
)


class PredictedTimes(NamedTuple):
    """For each row: the expected time, its interval, and whether the row is similar to those learned from."""

    value_us: NDArray[float64]
    low_us: NDArray[float64]
    high_us: NDArray[float64]
    in_domain: NDArray[bool_]


@dataclass(frozen=True, slots=True)
class MeasuredError(Record):
    """The error on unseen groups, by cross-validation with ``folds`` folds, ``tried`` of them held out in turn.
    ``mape`` is the mean and ``median`` the median of |predicted / measured - 1|."""

    rows: int
    folds: int
    tried: int
    mape: float
    median: float


@dataclass(frozen=True, slots=True, eq=False)
class Correction:
    """The logarithm of measured by physical time, as the weighted mean of ``rough`` and ``smooth``."""

    rough: BoostedTrees | LearnedRates
    smooth: SmoothCorrection

    def times(self, features: NDArray[float64], physics_us: NDArray[float64]) -> NDArray[float64]:
        """Physical estimates, corrected."""
        import numpy as np

        rough, smooth = self.rough.predict(features), self.smooth.predict(features)
        logarithms = (1 - _SHARE_OF_SMOOTH) * rough + _SHARE_OF_SMOOTH * smooth
        times: NDArray[float64] = physics_us * np.exp(logarithms)
        return times


@dataclass(frozen=True, slots=True, eq=False)
class TimeModel:
    """The model made by ``fit_time_model`` and stored by ``time_model_file``."""

    device: str
    features: tuple[str, ...]
    correction: Correction
    intervals: ConformalIntervals
    domain: Domain
    error: MeasuredError
    rows: int
    versions: Mapping[str, str] = field(default_factory=dict)

    def predict(self, features: NDArray[float64], physics_us: NDArray[float64]) -> PredictedTimes:
        """The time of each row of ``features``, given its physical estimate."""
        value = self.correction.times(features, physics_us)
        low, high = self.intervals.around(value)
        return PredictedTimes(value, low, high, self.domain.contains(features))


def fit_time_model(
    features: NDArray[float64],
    physics_us: NDArray[float64],
    measured_us: NDArray[float64],
    groups: NDArray[Any] | None = None,
    *,
    device: str,
    names: Sequence[str],
    versions: Mapping[str, str] | None = None,
    settings: TreeSettings | None = None,
    tried: int | None = None,
    unseen_us: NDArray[float64] | None = None,
    apart: Sequence[int] = (),
    terms: Sequence[int] = (),
) -> TimeModel:
    """A model of one device. ``groups`` names the problem of each row; cross-validation keeps the rows of a problem
    together. Without it every row is a problem of its own. In the smooth function, rows affect each other only if the
    same of the features ``apart`` is not 0. ``terms`` are the features of ``LearnedRates.terms``, if there are any.

    ``unseen_us`` is the result of ``unseen_times`` for the same rows, if the caller has it; otherwise ``tried`` folds
    are held out."""
    import numpy as np

    groups = np.arange(len(measured_us)) if groups is None else np.asarray(groups)
    _check(features, physics_us, measured_us, groups, names)
    settings = _usual_settings(len(measured_us)) if settings is None else settings
    if unseen_us is None:
        unseen_us = unseen_times(
            features, physics_us, measured_us, groups, settings=settings, tried=tried, apart=apart, terms=terms
        )
    known = np.isfinite(unseen_us)
    off = np.abs(unseen_us[known] / measured_us[known] - 1)
    held_out = len(np.unique(fold_of(groups, FOLDS)[known]))
    return TimeModel(
        device,
        tuple(names),
        fit_correction(features, np.log(measured_us / physics_us), settings=settings, apart=apart, terms=terms),
        calibrate(unseen_us[known], measured_us[known]),
        fit_domain(features, groups),
        MeasuredError(int(known.sum()), FOLDS, held_out, float(off.mean()), float(np.median(off))),
        len(measured_us),
        dict(versions or {}),
    )


def unseen_times(
    features: NDArray[float64],
    physics_us: NDArray[float64],
    measured_us: NDArray[float64],
    groups: NDArray[Any],
    *,
    settings: TreeSettings,
    tried: int | None = None,
    apart: Sequence[int] = (),
    terms: Sequence[int] = (),
) -> NDArray[float64]:
    """The prediction for each row of the first ``tried`` folds by models of the other folds; NaN for other rows. By
    default all folds are held out if rows are few, and the first alone if they are many."""
    import numpy as np

    fold = fold_of(groups, FOLDS)
    targets, unseen = np.log(measured_us / physics_us), np.full(len(measured_us), np.nan)
    for each in range((FOLDS if len(measured_us) < _MANY else 1) if tried is None else tried):
        out = fold == each
        fitted = fit_correction(features[~out], targets[~out], settings=settings, apart=apart, terms=terms)
        unseen[out] = fitted.times(features[out], physics_us[out])
    return unseen


def _usual_settings(rows: int) -> TreeSettings:
    """How trees are grown: small ones with several seeds for few rows, or one series of large ones."""
    return _FEW_ROWS if rows < _MANY else _MANY_ROWS


def fit_correction(
    features: NDArray[float64],
    targets: NDArray[float64],
    *,
    settings: TreeSettings,
    apart: Sequence[int],
    terms: Sequence[int] = (),
) -> Correction:
    """A correction of physical estimates; ``targets`` are the logarithms of their errors. If rows are many and have
    ``terms``, rates are learned instead of trees."""
    has_rates = len(terms) > 0 and len(targets) >= _MANY
    return Correction(
        fit_learned_rates(features, targets, terms) if has_rates else fit_boosted_trees(features, targets, settings),
        fit_smooth_correction(features, targets, apart),
    )


def _check(
    features: NDArray[float64],
    physics_us: NDArray[float64],
    measured_us: NDArray[float64],
    groups: NDArray[Any],
    names: Sequence[str],
) -> None:
    import numpy as np

    lengths = {len(features), len(physics_us), len(measured_us), len(groups)}
    if len(lengths) > 1 or features.shape[1:] != (len(names),):
        raise BadInput(
            f"features, physics_us, measured_us and groups must have one row each for a problem and {len(names)} "
            f"features, got {features.shape}, {physics_us.shape}, {measured_us.shape} and {groups.shape}"
        )
    for name, times in (("physics_us", physics_us), ("measured_us", measured_us)):
        if not (np.isfinite(times) & (times > 0)).all():
            raise BadInput(f"{name} must be finite and above 0, got {times[~(np.isfinite(times) & (times > 0))][0]}")
    if (known := len(np.unique(groups))) < 2 * FOLDS:
        raise BadInput(f"a time model needs at least {2 * FOLDS} problems, got {known}")
