"""The interface of predictors, which answer like a measurement but run nothing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from convwright.core.candidate import Candidate
from convwright.core.device import DeviceFacts
from convwright.core.finding import Interval
from convwright.core.record import Record


@dataclass(frozen=True, slots=True)
class Prediction(Record):
    """The predicted device time of one call, and power and energy if known. ``in_domain`` is False if the predictor has
    seen nothing like the candidate.

    The bounds hold nine of ten measured times of candidates that the predictor had not seen.
    """

    time_us: Interval
    in_domain: bool
    power_w: Interval | None = None
    energy_mj: Interval | None = None


class Predictor(Protocol):
    """Predicts candidates for a device, whether or not it is in this machine."""

    def predict(self, candidate: Candidate, device: DeviceFacts) -> Prediction | None:
        """The prediction; None if nothing can be said."""
        ...

    def predict_all(self, candidates: Sequence[Candidate], device: DeviceFacts) -> list[Prediction | None]:
        """The predictions of many candidates, faster than one by one."""
        ...


def expected_us(predictions: Sequence[Prediction | None]) -> list[float | None]:
    """The times without their bounds."""
    return [None if each is None else each.time_us.value for each in predictions]
