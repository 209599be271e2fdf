"""Predict times from a device's data sheet alone, if no model was learned: physics, one factor, and a wide interval.

Such a prediction cannot tell which of a library's engines is faster. It says how long the better ones take.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from convwright.core.candidate import Candidate
from convwright.core.device import DeviceFacts
from convwright.core.dtype import Arithmetic, DType
from convwright.core.finding import Interval
from convwright.core.predictor import Prediction
from convwright.core.problem import ConvProblem
from convwright.core.tensor_spec import Layout
from convwright.prediction.features import PARTS, features
from convwright.prediction.physics import least_us


class Ratio(NamedTuple):
    """Measured by physical time: the median, and bounds that hold nine of ten."""

    median: float
    low: float
    high: float


# From 10,000 candidates timed on an H200 (docs/prediction.md): with a backend's estimate, and with only the device's
# peak rates.
ESTIMATED, AT_PEAK = Ratio(0.93, 0.5, 1.9), Ratio(3.1, 1.5, 12.0)
_ESTIMATE = PARTS.index("backend's estimate µs")
# The fastest cuDNN engine and PyTorch's own call took 4 µs plus 3 times the physical minimum; 95 of 100 took between
# 1/4.5 and 7.5 times that: 998 problems of the suites in fp32, TF32 and 16 bits, on an H200 (`benchmarks/results`). The
# reference's algorithms took 9 to 70 times the minimum.
_START_US = 4.0
_TIMES: Mapping[str, float] = {"cudnn": 3.0, "torch": 3.0, "reference": 30.0}
_ROUGHLY = Ratio(1.0, 1 / 4.5, 7.5)
# Tensor cores multiply 16 bits along channels. Libraries first copy images in NCHW, which made whole fp16 networks take
# 1.4 to 1.6 times as long as with channels last (H200, `benchmarks/results/h200-whole-networks.jsonl`).
_IN_PLANES = 1.5


class DataSheet:
    """A ``Predictor`` without any measurement. Nothing is in its domain."""

    def predict(self, candidate: Candidate, device: DeviceFacts) -> Prediction | None:
        return self.predict_all([candidate], device)[0]

    def predict_all(self, candidates: Sequence[Candidate], device: DeviceFacts) -> list[Prediction | None]:
        found = features(candidates, device, ())
        physics, estimates = found.physics_us.tolist(), found.parts[:, _ESTIMATE].tolist()
        return [
            Prediction(_time(*each, device), in_domain=False)
            for each in zip(candidates, physics, estimates, strict=True)
        ]


DATA_SHEET = DataSheet()


def _time(candidate: Candidate, physics_us: float, estimate_us: float, device: DeviceFacts) -> Interval:
    if estimate_us:
        return _scattered(physics_us, ESTIMATED)
    least, times = least_us(candidate, device), _TIMES.get(candidate.leaf.backend)
    if least is None or times is None:
        return _scattered(physics_us, AT_PEAK)
    if _copies_planes(candidate.leaf):
        times *= _IN_PLANES
    return _scattered(candidate.runs * _START_US + times * least, _ROUGHLY)


def operator_us(nbytes: int, flops: int, arithmetic: Arithmetic, device: DeviceFacts) -> Interval | None:
    """The time of a PyTorch operator of which only the size is known; None if the device's rates are unknown."""
    bandwidth, peak = device.bandwidth_bytes_per_us, device.peak(arithmetic)
    if not bandwidth or (flops and not peak):
        return None
    least = max(nbytes / bandwidth, flops / peak if peak else 0.0)
    return _scattered(_START_US + _TIMES["torch"] * least, _ROUGHLY)


def _scattered(time_us: float, ratio: Ratio) -> Interval:
    return Interval(ratio.median * time_us, ratio.low * time_us, ratio.high * time_us)


def _copies_planes(leaf: Candidate) -> bool:
    problem = leaf.problem
    is_16_bit = isinstance(problem, ConvProblem) and problem.dtype in (DType.FP16, DType.BF16)
    return is_16_bit and problem.groups == 1 and problem.x.layout is not Layout.NHWC
