"""What answers like a measurement without running anything."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from convwright.core.candidate import Candidate
from convwright.core.device import DeviceFacts
from convwright.core.finding import Interval
from convwright.core.record import Record


@dataclass(frozen=True, slots=True)
class Prediction(Record):
    """The device time of one call. Out of its domain a predictor has seen nothing like the candidate."""

    time_us: Interval
    in_domain: bool


class Predictor(Protocol):
    """Predicts candidates for a device, whether or not it is in this machine."""

    def predict(self, candidate: Candidate, device: DeviceFacts) -> Prediction | None:
        """None where nothing can be said."""
        ...
