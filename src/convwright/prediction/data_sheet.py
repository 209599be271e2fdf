"""Times from a device's data sheet alone, for a device of which no model was learned: physics, one factor, and an
interval as wide as such estimates err."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from convwright.core.candidate import Candidate
from convwright.core.device import DeviceFacts
from convwright.core.finding import Interval
from convwright.core.predictor import Prediction
from convwright.prediction.features import PARTS, features


class Ratio(NamedTuple):
    """Measured over physical time: the median, and the bounds of nine in ten."""

    median: float
    low: float
    high: float


# Of 10,000 candidates that were timed on an H200 (docs/prediction.md): where a backend estimates a time, and where only
# the device's peak rates are known.
ESTIMATED, AT_PEAK = Ratio(0.93, 0.5, 1.9), Ratio(3.1, 1.5, 12.0)
_ESTIMATE = PARTS.index("backend's estimate µs")


class DataSheet:
    """A ``Predictor`` that knows no measurement. Nothing is in its domain."""

    def predict(self, candidate: Candidate, device: DeviceFacts) -> Prediction | None:
        return self.predict_all([candidate], device)[0]

    def predict_all(self, candidates: Sequence[Candidate], device: DeviceFacts) -> list[Prediction | None]:
        found = features(candidates, device, ())
        given = zip(found.physics_us.tolist(), found.parts[:, _ESTIMATE].tolist(), strict=True)
        return [Prediction(_times(us, ESTIMATED if estimate else AT_PEAK), in_domain=False) for us, estimate in given]


def _times(physics_us: float, ratio: Ratio) -> Interval:
    return Interval(ratio.median * physics_us, ratio.low * physics_us, ratio.high * physics_us)
