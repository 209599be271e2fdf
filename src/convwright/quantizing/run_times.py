"""The time of a run of a model as it is and in int8, side by side."""

from __future__ import annotations

from convwright.core.device import DeviceFacts
from convwright.engine.capture.example import Subject
from convwright.engine.capture.unchanged import unchanged, unwritten
from convwright.errors import in_words
from convwright.measuring.paired import Paired
from convwright.measuring.timer import measure_together

BUDGET_US = 500_000.0
# A few percent more or less decide nothing here.
_PRECISION = 0.04


def run_times(own: Subject, int8: Subject, device: DeviceFacts) -> Paired | str:
    """The device times of both (on a CPU, wall times), or why they could not be measured."""
    modules = [each.module for each in (own, int8) if each.module is not None]
    assert len(modules) == 2, "what is quantized is a module"
    try:
        with unchanged(modules[0]), unchanged(modules[1]), unwritten(own.given()):
            calls = {"own": own, "int8": int8}
            timings = measure_together(calls, device=device.torch_name, budget_us=BUDGET_US, precision=_PRECISION)
    except Exception as error:  # whatever somebody's model raises, as inside a CUDA graph
        return in_words(error)
    took = Paired.of(timings, "own", "int8")
    return took.partition("; ")[0] if isinstance(took, str) else took  # one cause is enough
