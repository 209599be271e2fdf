"""What candidates without an estimate of their backend should take: what the device needs at least, times a factor.

Such a prediction cannot say which of two engines of a library is faster. It says how long the better ones take, within
wide bounds.
"""

from __future__ import annotations

from collections.abc import Mapping

from convwright.core.candidate import Candidate
from convwright.core.device import DeviceFacts
from convwright.core.dtype import Arithmetic, DType
from convwright.core.finding import Interval
from convwright.core.predictor import Prediction
from convwright.core.problem import ConvProblem
from convwright.core.tensor_spec import Layout
from convwright.prediction.physics import least_us

# The fastest engine of cuDNN and PyTorch's own call took 4 µs and 3 times what the device needs at least, and 95 in 100
# took between 1/4.5 and 7.5 times that: 998 problems of the suites in fp32, TF32 and 16 bits, on an H200
# (`benchmarks/results`). The algorithms of the reference took 9 to 70 times the least.
_START_US = 4.0
_TIMES: Mapping[str, float] = {"cudnn": 3.0, "torch": 3.0, "reference": 30.0}
_LESS, _MORE = 4.5, 7.5
# Tensor cores multiply 16 bits along channels. Libraries copy images in planes first, which made whole networks in fp16
# take 1.4 to 1.6 times as long as with channels last (H200, `benchmarks/results/h200-whole-networks.jsonl`).
_IN_PLANES = 1.5


class Physical:
    """A ``Predictor`` that knows nothing of a candidate but its bytes, its products and its backend."""

    def predict(self, candidate: Candidate, device: DeviceFacts) -> Prediction | None:
        least = least_us(candidate, device)
        times = _TIMES.get(candidate.leaf.backend)
        if least is None or times is None:
            return None
        if _copies_planes(candidate.leaf):
            times *= _IN_PLANES
        return Prediction(roughly(candidate.runs * _START_US + times * least), in_domain=False)


PHYSICAL = Physical()


def _copies_planes(leaf: Candidate) -> bool:
    problem = leaf.problem
    is_16_bit = isinstance(problem, ConvProblem) and problem.dtype in (DType.FP16, DType.BF16)
    return is_16_bit and problem.groups == 1 and problem.x.layout is not Layout.NHWC


def operator_us(nbytes: int, flops: int, arithmetic: Arithmetic, device: DeviceFacts) -> Interval | None:
    """The time of an operator of PyTorch's of which only the size is known; None where the device's rates are not."""
    bandwidth, peak = device.bandwidth_bytes_per_us, device.peak(arithmetic)
    if not bandwidth or (flops and not peak):
        return None
    least = max(nbytes / bandwidth, flops / peak if peak else 0.0)
    return roughly(_START_US + _TIMES["torch"] * least)


def roughly(time_us: float) -> Interval:
    """A time with the bounds of what is known so little of."""
    return Interval(time_us, time_us / _LESS, time_us * _MORE)
