"""A learned model as a predictor of candidates: their features, its times, and its energies if it has learned any."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from convwright.core.candidate import Candidate
from convwright.core.device import DeviceFacts
from convwright.core.finding import Interval
from convwright.core.predictor import Prediction
from convwright.prediction.features import Features, features
from convwright.prediction.time_model import PredictedTimes, TimeModel

if TYPE_CHECKING:
    from numpy import float64
    from numpy.typing import NDArray

# Out of the domain bounds are so many times as far from the value at least, since nothing calibrates them there.
_OUTSIDE = 4.0
# The physical estimate that a model of energies corrects: this power, for as long as the physical time. µs · W / 1000
# are mJ.
WATTS = 300.0


@dataclass(frozen=True, slots=True, eq=False)
class LearnedTimes:
    """A ``Predictor`` for the device of its models. ``energy``, of the same features, predicts mJ."""

    times: TimeModel
    energy: TimeModel | None = None

    def predict(self, candidate: Candidate, device: DeviceFacts) -> Prediction | None:
        return self.predict_all([candidate], device)[0]

    def predict_all(self, candidates: Sequence[Candidate], device: DeviceFacts) -> list[Prediction | None]:
        if not candidates:
            return []
        found = features(candidates, device, self.times.features)
        times = _intervals(found, self.times, found.physics_us)
        energies: Sequence[tuple[Interval, bool] | None] = [None] * len(candidates)
        if self.energy is not None:
            shown = features(candidates, device, self.energy.features)
            energies = _intervals(shown, self.energy, energy_physics_mj(shown.physics_us))
        return [
            Prediction(us, in_domain, None if mj is None else mj[0])
            for (us, in_domain), mj in zip(times, energies, strict=True)
        ]


def energy_physics_mj(physics_us: NDArray[float64]) -> NDArray[float64]:
    """What a candidate needs by physics, at one power."""
    energy: NDArray[float64] = physics_us * WATTS / 1000.0
    return energy


def _intervals(found: Features, model: TimeModel, physics: NDArray[float64]) -> list[tuple[Interval, bool]]:
    predicted: PredictedTimes = model.predict(found.rows, physics)
    columns = (predicted.value_us, predicted.low_us, predicted.high_us, predicted.in_domain & found.known)
    made = []
    for value, low, high, in_domain in zip(*(column.tolist() for column in columns), strict=True):
        wide = 1.0 if in_domain else _OUTSIDE
        made.append((Interval(value, min(low, value / wide), max(high, value * wide)), in_domain))
    return made
