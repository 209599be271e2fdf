"""Several problems by PyTorch's own call, or several models, timed side by side in one run."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

import torch

from convwright.core.candidate import Candidate
from convwright.core.device import DeviceFacts
from convwright.core.problem import ConvProblem
from convwright.errors import ConvwrightError
from convwright.measuring.compare import Verdict, compare_undisturbed
from convwright.measuring.timer import measure_together
from convwright.measuring.timing import Timing
from convwright.settings import Mode
from convwright.tuning.trials.trial import Bench, Trial

_SEED = 20


def time_pair(
    before: Candidate,
    after: Candidate,
    device: DeviceFacts,
    *,
    packs: tuple[bool, bool],
    budget_us: float,
    tolerate_load: bool = False,
) -> Verdict | None:
    """Two candidates side by side. ``packs`` says for each whether a call includes packing its weight. None if either
    cannot run, or if other work disturbs the timing and this is not tolerated."""
    try:
        with torch.autocast(device.kind, enabled=False):
            calls = {
                name: _call(Trial(candidate, Bench(candidate.problem, device, Mode.QUICK, seed=_SEED)), packs=each)
                for name, candidate, each in zip(("before", "after"), (before, after), packs, strict=True)
            }
            timings = time_calls(calls, device, budget_us=budget_us)
    except (ConvwrightError, RuntimeError):  # for example, memory is short
        return None
    return compare_undisturbed(timings["after"], timings["before"], tolerate_load=tolerate_load)


def _call(trial: Trial, *, packs: bool) -> Callable[[], object]:
    call, prepare = trial.call(), trial.preparation() if packs else None
    if prepare is None:
        return call

    def both() -> object:
        prepare()
        return call()

    return both


def time_problems(
    own: Candidate, problems: Mapping[str, ConvProblem], device: DeviceFacts, *, budget_us: float
) -> dict[str, Timing]:
    """The time of each problem by ``own``, PyTorch's own call, on its own operands."""
    trials = {
        name: Trial(replace(own, problem=problem), Bench(problem, device, Mode.QUICK, seed=_SEED))
        for name, problem in problems.items()
    }
    with torch.autocast(device.kind, enabled=False):
        return time_calls({name: trial.call() for name, trial in trials.items()}, device, budget_us=budget_us)


def time_calls(
    calls: Mapping[str, Callable[[], object]], device: DeviceFacts, *, budget_us: float
) -> dict[str, Timing]:
    """The device time of each call; on a CPU, its wall time."""
    return measure_together(calls, device=device.torch_name, budget_us=budget_us)
