"""Predictions from backends' own estimates."""

from __future__ import annotations

from collections.abc import Sequence

from convwright.core.candidate import Candidate
from convwright.core.device import DeviceFacts
from convwright.core.finding import Interval
from convwright.core.predictor import Prediction
from convwright.prediction.physics import moved_bytes

# 93 of 100 kernels took between half and twice their estimate (H200, 1,513 configurations).
ERROR = 2.0


class Estimates:
    """A ``Predictor`` that adds the copies of rewrites to each backend's own estimate."""

    def predict(self, candidate: Candidate, device: DeviceFacts) -> Prediction | None:
        leaf_us = candidate.leaf.estimated_us
        return None if leaf_us is None else Prediction(around_leaf(candidate, device, leaf_us, ERROR), in_domain=True)

    def predict_all(self, candidates: Sequence[Candidate], device: DeviceFacts) -> list[Prediction | None]:
        return [self.predict(candidate, device) for candidate in candidates]


ESTIMATES = Estimates()


def around_leaf(candidate: Candidate, device: DeviceFacts, leaf_us: float, error: float) -> Interval:
    """The time of a candidate whose leaf takes ``leaf_us``, up to a factor of ``error`` either way."""
    bandwidth = device.bandwidth_bytes_per_us
    moving = moved_bytes(candidate) / bandwidth if bandwidth else 0.0
    runs_us = candidate.runs * leaf_us
    return Interval(runs_us + moving, runs_us / error + moving, runs_us * error + moving)
