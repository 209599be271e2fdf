"""Predict a new device's times from few measurements and a reference device's times for the same problems.

The reference device's time, measured or predicted by its own model, replaces the physical estimate in a ``TimeModel``:
it covers much of what is unknown about a problem. Further features are the ratios of both devices' estimates, and of
the reference device's time to its own estimate.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from convwright.errors import BadInput
from convwright.prediction.boosted_trees import TreeSettings
from convwright.prediction.time_model import PredictedTimes, TimeModel, fit_time_model

if TYPE_CHECKING:
    from numpy import float64
    from numpy.typing import NDArray


@dataclass(frozen=True, slots=True, eq=False)
class SharedProblems:
    """Problems that two devices have in common, one per row.

    ``estimates_us`` and ``reference_estimates_us`` are physical estimates, with the same columns for both devices, for
    example one for each way to compute the problem.
    """

    reference_us: NDArray[float64]
    features: NDArray[float64]
    estimates_us: NDArray[float64]
    reference_estimates_us: NDArray[float64]

    def inputs(self) -> tuple[NDArray[float64], NDArray[float64]]:
        """The features for a time model, and the times that it corrects."""
        import numpy as np

        self._check()
        reference, own = np.log(self.reference_us)[:, None], np.log(self.estimates_us)
        other = np.log(self.reference_estimates_us)
        # The reference's time scaled by the ratio of two rooflines was a worse start: 7.4 % error with 300 problems of
        # a T4 instead of 6.9 %. The trees find that ratio among the features.
        return np.hstack([self.features, reference, reference - other, own - other]), self.reference_us

    def names(self, features: Sequence[str], estimates: Sequence[str]) -> tuple[str, ...]:
        """The names of the features in ``inputs``, from the names of ``features`` and of the estimates' columns."""
        by_estimate = [f"reference time by {name}" for name in estimates]
        return (*features, "reference time", *by_estimate, *(f"{name} by the reference's" for name in estimates))

    def _check(self) -> None:
        shapes = [self.estimates_us.shape, self.reference_estimates_us.shape]
        rows = {len(self.reference_us), len(self.features), *(shape[0] for shape in shapes)}
        if len(rows) > 1 or shapes[0] != shapes[1] or not shapes[0][1:] > (0,):
            raise BadInput(
                f"shared problems must have one row each and the same estimates for both devices, got "
                f"{self.reference_us.shape}, {self.features.shape}, {shapes[0]} and {shapes[1]}"
            )
        for times in (self.reference_us, self.estimates_us, self.reference_estimates_us):
            if not (times > 0).all():  # also refuses NaN
                raise BadInput(f"times of shared problems must be above 0, got {times[~(times > 0)][0]}")


@dataclass(frozen=True, slots=True, eq=False)
class TransferModel:
    """A model of a device that needs a reference device's times. ``model`` is stored like any other time model."""

    reference: str
    model: TimeModel

    def predict(self, problems: SharedProblems) -> PredictedTimes:
        """The time of each problem on the new device."""
        return self.model.predict(*problems.inputs())


def fit_transfer(
    problems: SharedProblems,
    measured_us: NDArray[float64],
    groups: NDArray[Any] | None = None,
    *,
    device: str,
    reference: str,
    features: Sequence[str],
    estimates: Sequence[str],
    versions: Mapping[str, str] | None = None,
    settings: TreeSettings | None = None,
) -> TransferModel:
    """A model of ``device`` from problems measured there. If the reference device's times will be predicted later, they
    must be predicted here too, by a model that has not seen these problems: measured ones are too accurate."""
    rows, reference_us = problems.inputs()
    names, known = problems.names(features, estimates), dict(versions or {}) | {"reference": reference}
    model = fit_time_model(
        rows, reference_us, measured_us, groups, device=device, names=names, versions=known, settings=settings
    )
    return TransferModel(reference, model)
