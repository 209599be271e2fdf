"""Several predictors as one."""

from __future__ import annotations

from dataclasses import dataclass

from convwright.core.candidate import Candidate
from convwright.core.device import DeviceFacts
from convwright.core.predictor import Prediction, Predictor


@dataclass(frozen=True, slots=True)
class InTurn:
    """A ``Predictor`` that asks others, and takes the first answer."""

    predictors: tuple[Predictor, ...]

    def predict(self, candidate: Candidate, device: DeviceFacts) -> Prediction | None:
        answers = (predictor.predict(candidate, device) for predictor in self.predictors)
        return next((answer for answer in answers if answer is not None), None)
