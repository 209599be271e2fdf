"""The timer: times several calls side by side, each to a given precision, within a budget."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import count
from random import Random
from reprlib import repr as brief

import torch
from torch import Tensor

from convwright.errors import BadInput, IgnoredWarning
from convwright.measuring.cache import Cache, before_each
from convwright.measuring.call import Call, rotating
from convwright.measuring.clock import Clock, CudaGraphClock, WallClock
from convwright.measuring.conditions import Conditions, conditions, today
from convwright.measuring.disturbances.background import Background
from convwright.measuring.disturbances.stability import bend, complaints, overhead_us
from convwright.measuring.disturbances.threads import pinned
from convwright.measuring.disturbances.throttle import Watch, watch_of
from convwright.measuring.energy import counter_of, energy_of
from convwright.measuring.hardware.machine import device_facts
from convwright.measuring.memory import peak_extra_bytes
from convwright.measuring.regression import median_time
from convwright.measuring.rounds import Rounds
from convwright.measuring.subject import FEWEST_ROUNDS, Subject, subjects_of
from convwright.measuring.timing import Timing as Timing
from convwright.naming import check_above_0, is_whole, one_of
from convwright.option_names import CacheName
from convwright.uncompiled import uncompiled

_run_numbers = count()
# More threads per core only disturb each other, and OpenMP ends the process if it cannot start them all.
_MOST_THREADS_A_CORE = 4
# So many rounds contain two that bound the median. An interval of fewer is often useless: if one of two rounds takes
# 1.7 times as long as the other, it goes from a thirtieth of the time to thirty times the time.
_FEWEST_ON_CPU = 6


@uncompiled()
def measure(
    call: Call,
    *,
    device: str | torch.device | None = None,
    clock: Clock | None = None,
    budget_us: float = 1e6,
    precision: float = 0.01,
    seed: int = 0,
    cache: Cache | CacheName = Cache.HOT,
    warm: Sequence[Tensor] = (),
    threads: int | None = None,
    memory: bool = False,
    energy: bool = False,
) -> Timing:
    """Time one call, and measure more on request. Its device is the returned tensor's, or ``device``.
    A call that returns a model is timed as it is, with a warning: what is timed makes the model, and does not run it.

    Args:
        call: A function without arguments, or several that do the same on different inputs, called in turn.
        budget_us: The most time to spend on timing. On a CPU it may take longer: each function is called at least nine
            times, three times before the rounds and once in each of six.
        precision: Stop earlier once the 95 % interval is this narrow, as a share of the time.
        cache: What a call finds there: "hot" what the last one left, "cold" nothing, "network" the tensors in ``warm``.
        threads: PyTorch's CPU threads meanwhile. The conditions report the number.
        memory: Also find the peak extra memory.
        energy: Also find the energy of a call, which takes more than 6 s.

    >>> timing = measure(lambda: sum(range(1000)), device="cpu", budget_us=20_000)
    >>> timing.call_us.low <= timing.call_us.value <= timing.call_us.high
    True
    """
    return measure_together(
        {"": call}, device=device, clock=clock, budget_us=budget_us, precision=precision, seed=seed,
        cache=cache, warm=warm, threads=threads, memory=memory, energy=energy,
    )[""]  # fmt: skip


@uncompiled()
def measure_together(
    calls: Mapping[str, Call],
    *,
    device: str | torch.device | None = None,
    clock: Clock | None = None,
    budget_us: float = 1e6,
    precision: float = 0.01,
    seed: int = 0,
    cache: Cache | CacheName = Cache.HOT,
    warm: Sequence[Tensor] = (),
    threads: int | None = None,
    memory: bool = False,
    energy: bool = False,
    progress: Callable[[float], object] | None = None,
) -> dict[str, Timing]:
    """``measure`` for several calls in one run, so that ``compare`` can decide between them. They share the budget.

    >>> found = measure_together({"one": lambda: sum(range(1000)), "two": lambda: sum(range(9000))}, budget_us=50_000)
    >>> from convwright.measuring.compare import compare
    >>> str(compare(found["two"], found["one"]).outcome)
    'slow'
    """
    if not isinstance(calls, Mapping):
        raise BadInput(f"`calls` must name each call, for example {{'one': call}}, got {brief(calls)}")
    state = one_of(Cache, "cache", cache)
    if energy and state is not Cache.HOT:
        raise BadInput(f"energy can be measured with a hot cache only, got cache {state.value!r}")
    _check_threads(threads)
    with pinned(threads) as thread_count:
        where = _device_of(calls, getattr(clock, "device", "cpu") if device is None and clock else device)
        timer = clock or (CudaGraphClock(where) if where.type == "cuda" else WallClock())
        before = before_each(state, where, warm=warm)
        timings = measure_calls(
            calls, clock=timer, budget_us=budget_us, precision=precision, seed=seed, progress=progress,
            before={} if before is None else dict.fromkeys(calls, before),
            fewest_rounds=_FEWEST_ON_CPU if where.type == "cpu" else FEWEST_ROUNDS,
        )  # fmt: skip
        once = {name: rotating(call) for name, call in calls.items()}
        facts = _conditions(where, timer, state, thread_count)
        return {
            name: replace(
                timing,
                cache=state,
                peak_extra_bytes=peak_extra_bytes(once[name], where) if memory else None,
                energy=energy_of(once[name], timer, counter_of(where)) if energy else None,
                conditions=facts,
            )
            for name, timing in timings.items()
        }


def measure_calls(
    calls: Mapping[str, Call],
    *,
    clock: Clock,
    budget_us: float,
    precision: float = 0.01,
    seed: int = 0,
    before: Mapping[str, Callable[[], object]] | None = None,
    watch: Watch | None = None,
    progress: Callable[[float], object] | None = None,
    fewest_rounds: int = FEWEST_ROUNDS,
) -> dict[str, Timing]:
    """Time all calls, interleaved in random order, until each is known to ± ``precision`` / 2.

    A round times every call at several n and gives each one slope; the median of the slopes is the time of a call.
    Rounds end when every interval is narrow enough and no call is undecided against the fastest, or when the next round
    would not fit into ``budget_us``; there are at least ``fewest_rounds``.

    ``before`` maps names of calls to work that runs before each and is not part of its time, such as emptying the
    cache. ``watch`` detects a slowed-down device or a busy host; rounds with either are discarded. ``progress``
    receives after each round the share of the budget that is spent.
    """
    if not calls:
        raise BadInput("a run needs at least one call to time, got none")
    check_above_0("`budget_us`", budget_us)
    check_above_0("`precision`", precision)
    before = before or {}
    if unknown := before.keys() - calls.keys():
        raise BadInput(f"`before` names calls that are not measured: {', '.join(sorted(unknown))}")
    # Other work on the host does not affect the device's time.
    end_us, background = clock.now_us() + budget_us, None if isinstance(clock, CudaGraphClock) else Background()
    subjects = subjects_of(calls, before, clock, budget_us=budget_us, end_us=end_us, fewest_rounds=fewest_rounds)
    watch = watch or watch_of(clock)
    rounds = Rounds(list(subjects.values()), clock, watch, Random(seed), fewest=fewest_rounds)
    rounds.run(end_us, precision, progress or (lambda _: None))
    causes, run = () if background is None else background.causes(), next(_run_numbers)
    timings = {name: _timing(subject, rounds, watch, precision, causes, run) for name, subject in subjects.items()}
    return {
        name: replace(each, call_us=each.call_us.wider(clock.steady_to_us).known_above_0())
        for name, each in timings.items()
    }


def _check_threads(threads: int | None) -> None:
    cores = os.cpu_count() or 1
    most = _MOST_THREADS_A_CORE * cores
    if threads is not None and not is_whole(threads):
        raise BadInput(f"`threads` must be a whole number, got {threads!r}")
    if threads is not None and threads > most:
        raise BadInput(
            f"`threads` must be at most {most}, {_MOST_THREADS_A_CORE} for each core of this machine, got {threads}"
        )


def _device_of(calls: Mapping[str, Call], device: str | torch.device | None) -> torch.device:
    results = None
    if device is None:
        results = {name: rotating(call)() for name, call in calls.items()}
        _warn_of_models(results)
        devices = {str(result.device) for result in results.values() if isinstance(result, Tensor)}
        if len(devices) > 1:
            raise BadInput(f"calls that are timed together must run on one device, got {', '.join(sorted(devices))}")
        if not devices and torch.cuda.is_available():
            raise BadInput("`device` must be given for a call that returns no tensor: it may run on a CPU or a GPU")
        device = devices.pop() if devices else "cpu"
    if str(device).partition(":")[0] not in ("cpu", "cuda"):
        raise BadInput(f"calls can be timed on a CPU and on a CUDA device, got device {str(device)!r}")
    device_facts(device)  # raises one sentence if there is no such device
    if results is None:
        _warn_of_models({name: rotating(call)() for name, call in calls.items()})
    return torch.device(device)


def _warn_of_models(results: Mapping[str, object]) -> None:
    """Say of a call that returns a model that the model does not run."""
    for name, result in results.items():
        model = result[0] if isinstance(result, tuple) and result else result
        if isinstance(model, torch.nn.Module):
            what = f"the call {name!r}" if name else "the call"
            warnings.warn(
                f"{what} returns a model ({type(model).__name__}): this is the time to make it, not to run it; "
                "give lambda: model(x)",
                IgnoredWarning,
                stacklevel=4 if name else 5,
            )


def _timing(
    subject: Subject, rounds: Rounds, watch: Watch, precision: float, background: Sequence[str], run: int
) -> Timing:
    counting, sizes = rounds.counting, subject.series.sizes
    slopes_us = subject.slopes_us(counting)
    times_us = [subject.series.times_us[index] for index in counting]
    own_us = [subject.series.slopes_us[index] for index in counting]
    call_us, discarded = median_time(slopes_us), len(rounds.slowed) - len(counting)
    unstable = complaints(
        slopes_us, call_us, precision, bend=bend(sizes, times_us), background=background,
        slowed_down=watch.complaint([reason for reason in rounds.slowed if reason is not None], discarded),
    )  # fmt: skip
    return Timing(
        call_us=call_us,
        overhead_us=overhead_us(sizes, times_us, own_us),
        samples=len(counting) * len(sizes),
        round_slopes_us=tuple(slopes_us),
        unstable="; ".join(unstable) or None,
        run=run,
        discarded=discarded,
        disturbed=watch.passes and rounds.all_disturbed,
        background=tuple(background),
    )


def _conditions(device: torch.device, clock: Clock, cache: Cache, threads: int) -> Conditions:
    found = dict(conditions(device_facts(device)))
    found |= {**dict(today()), "threads": str(threads), "cache": cache.value, "clock": type(clock).__name__}
    if isinstance(clock, CudaGraphClock) and clock.fallbacks:
        found["timed by events"] = "; ".join(clock.fallbacks)
    return tuple(found.items())
