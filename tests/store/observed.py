"""Observations for tests of the store."""

from __future__ import annotations

from convwright.core.candidate import Candidate, Source
from convwright.core.dtype import Arithmetic
from convwright.core.finding import Interval, KindError, Measurement
from convwright.core.kinds.text import parse
from convwright.core.observation import Observation, Outcome
from convwright.core.policy import Policy

DEVICE = "NVIDIA H200"
MEASUREMENT = Measurement(
    Interval(3.0, 2.5, float("inf")), None, (KindError("normal", 1e-7, 0.5),), 4096, 8, (("cache", "hot"),)
)
POLICY = Policy(max_workspace_bytes=1 << 20, arithmetic=frozenset({Arithmetic.FP32, Arithmetic.TF32}))
_PROBLEM = parse("ic8ih9oc8kh3")


def observation(
    number: int, *, text: str | None = None, device: str = DEVICE, mode: str = "campaign", failure: str | None = None
) -> Observation:
    """One for each number, which is also when it was made."""
    problem = _PROBLEM if text is None else parse(text)
    candidate = Candidate(
        problem, "cudnn", "gemm", (("knob", number),), Arithmetic.FP32, 4096, True, Source.PLANNER, estimated_us=2.5
    )
    return Observation(
        candidate, device, "cudnn 9.19", Outcome.MEASURED if failure is None else Outcome.FAILED,
        MEASUREMENT if failure is None else None, failure, (2.5, 3.0), POLICY, mode, 1e6, 1e9 + number,
    )  # fmt: skip
