"""Predict candidates by learned models: their times, and their energies if powers were learned."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from convwright.core.candidate import Candidate
from convwright.core.device import DeviceFacts
from convwright.core.finding import Interval
from convwright.core.predictor import Prediction
from convwright.prediction.features import features
from convwright.prediction.power_model import PowerModel
from convwright.prediction.sums import energy_of
from convwright.prediction.time_model import TimeModel

# Outside the domain, where nothing calibrates them, bounds are at least this many times as far from the value.
_OUTSIDE = 4.0


@dataclass(frozen=True, slots=True, eq=False)
class LearnedTimes:
    """A ``Predictor`` for the device of its models."""

    times: TimeModel
    power: PowerModel | None = None

    def predict(self, candidate: Candidate, device: DeviceFacts) -> Prediction | None:
        return self.predict_all([candidate], device)[0]

    def predict_all(self, candidates: Sequence[Candidate], device: DeviceFacts) -> list[Prediction | None]:
        if not candidates:
            return []
        found = features(candidates, device, self.times.features)
        times = self.times.predict(found.rows, found.physics_us)
        watts = [None] * len(candidates) if self.power is None else self.power.watts(found, times.value_us).tolist()
        columns = (times.value_us, times.low_us, times.high_us, times.in_domain & found.known)
        return [self._prediction(*each) for each in zip(*(column.tolist() for column in columns), watts, strict=True)]

    def roughly_us(self, candidates: Sequence[Candidate], device: DeviceFacts) -> list[float]:
        """Times without the smooth function, whose matrix products take most of the time of a prediction."""
        import numpy as np

        if not candidates:
            return []
        found = features(candidates, device, self.times.features)
        times: list[float] = (found.physics_us * np.exp(self.times.correction.rough.predict(found.rows))).tolist()
        return times

    def _prediction(
        self, value_us: float, low_us: float, high_us: float, in_domain: bool, watts: float | None
    ) -> Prediction:
        wide = 1.0 if in_domain else _OUTSIDE
        time_us = Interval(value_us, min(low_us, value_us / wide), max(high_us, value_us * wide))
        power_w = None if watts is None or self.power is None else self.power.around(watts, in_domain=in_domain)
        return Prediction(time_us, in_domain, power_w, None if power_w is None else energy_of(power_w, time_us))
