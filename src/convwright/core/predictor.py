"""What answers like a measurement without running anything."""

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
    """The device time of one call, and power and energy where these are known. Out of its domain a predictor has seen
    nothing like the candidate.

    The bounds hold nine of ten measured times of candidates that the predictor had not seen.
    """

    time_us: Interval
    in_domain: bool
    power_w: Interval | None = None
    energy_mj: Interval | None = None


class Predictor(Protocol):
    """Predicts candidates for a device, whether or not it is in this machine."""

    def predict(self, candidate: Candidate, device: DeviceFacts) -> Prediction | None:
        """None where nothing can be said."""
        ...

    def predict_all(self, candidates: Sequence[Candidate], device: DeviceFacts) -> list[Prediction | None]:
        """The same of each of many, in less time than one by one."""
        ...
