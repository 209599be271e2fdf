"""A call of an engine beside a call of its model."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from convwright import torch_api
from convwright.engine.capture.unchanged import unchanged, unwritten
from convwright.engine.engine import Engine
from convwright.engine.running.undisturbed import undisturbed
from convwright.errors import ConvwrightError, first_line
from convwright.measuring.clock import WallClock
from convwright.measuring.paired import Paired
from convwright.measuring.timer import measure_together

_BUDGET_US, _PRECISION = 5e5, 0.02


def beside_model(engine: Engine, model: nn.Module, inputs: tuple[Any, ...]) -> Paired | str:
    """The times of a call, with the model before the engine; on a GPU with the host's work. A sentence if they
    say nothing."""

    def call(called: Callable[..., object]) -> Callable[[], object]:
        def and_wait() -> None:
            called(*inputs)
            if engine.device.type == "cuda":
                torch.cuda.synchronize(engine.device)

        return and_wait

    calls = {"model": call(model), "engine": call(engine)}
    try:
        with unchanged(model), unwritten(torch_api.flatten(inputs)[0]), undisturbed(engine.device):
            timings = measure_together(calls, clock=WallClock(), budget_us=_BUDGET_US, precision=_PRECISION)
    except (ConvwrightError, RuntimeError) as error:  # for example, memory is short
        return first_line(error)
    return Paired.of(timings, "model", "engine")
