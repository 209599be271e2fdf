"""The time of a run of a model as it is and in int8, side by side."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from convwright.core.device import DeviceFacts
from convwright.core.finding import Interval
from convwright.core.record import as_record
from convwright.engine.capture.example import Subject
from convwright.engine.capture.unchanged import unchanged, unwritten
from convwright.errors import in_words
from convwright.measuring.compare import Outcome, compare
from convwright.measuring.timer import measure_together

BUDGET_US = 500_000.0
# A few percent more or less decide nothing here.
_PRECISION = 0.04


@dataclass(frozen=True, slots=True)
class RunTimes:
    """Device time of one run; on a CPU, wall time. ``ratio`` is the time in int8 divided by the model's own, from
    ``rounds`` in which both ran. ``outcome`` says whether int8 is surely faster or slower. ``unstable`` says why these
    times may be wrong."""

    own_us: Interval
    int8_us: Interval
    ratio: Interval
    outcome: Outcome
    rounds: int
    unstable: str | None = None

    def to_json(self) -> dict[str, Any]:
        """Every figure, as data."""
        record: dict[str, Any] = as_record(self, infinite=str)
        return record


def run_times(own: Subject, int8: Subject, device: DeviceFacts) -> RunTimes | str:
    """The times of both, or why they could not be measured."""
    modules = [each.module for each in (own, int8) if each.module is not None]
    assert len(modules) == 2, "what is quantized is a module"
    try:
        with unchanged(modules[0]), unchanged(modules[1]), unwritten(own.given()):
            calls = {"own": own, "int8": int8}
            timings = measure_together(calls, device=device.torch_name, budget_us=BUDGET_US, precision=_PRECISION)
    except Exception as error:  # whatever somebody's model raises, as inside a CUDA graph
        return in_words(error)
    verdict = compare(timings["int8"], timings["own"])
    disturbed = [each.unstable for each in timings.values() if each.disturbed]
    if not (verdict.is_known and all(each.call_us.value > 0 for each in timings.values())):
        why = [each.unstable for each in timings.values() if each.unstable]
        return why[0] if why else "too few runs fit into the time"
    return RunTimes(
        timings["own"].call_us, timings["int8"].call_us, verdict.ratio, verdict.outcome,
        verdict.rounds, disturbed[0] if disturbed else None,
    )  # fmt: skip
