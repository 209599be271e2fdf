"""Candidates → findings: build each, look at it once, time the promising side by side, check their errors."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace

import torch

from convwright.core.candidate import Candidate
from convwright.core.device import DeviceFacts
from convwright.core.finding import Finding, Interval, KindError, Measurement
from convwright.core.policy import Policy
from convwright.core.problem import ConvProblem
from convwright.errors import ConvwrightError
from convwright.measuring.clock import Call, Clock, CudaGraphClock, HostClock, WallClock
from convwright.measuring.conditions import conditions
from convwright.measuring.error import ErrorCheck
from convwright.measuring.timer import Timing, measure_calls
from convwright.settings import Mode
from convwright.tuning.choose import choose, eager_us
from convwright.tuning.trial import Bench, Trial

# In mode quick, this share of the budget goes into first looks, and so many candidates are then timed properly.
_LOOKING_SHARE = 0.4
_FINALISTS = 4
_SEED = 20


def measure_candidates(
    candidates: Iterable[Candidate],
    baseline: Candidate | None,
    known: Mapping[str, Finding],
    problem: ConvProblem,
    device: DeviceFacts,
    policy: Policy,
    *,
    mode: Mode,
    budget_us: float,
) -> list[Finding]:
    """What was found out about each candidate, in their order. The baseline is looked at first."""
    end_us = _now_us() + budget_us
    bench = Bench(problem, device, seed=_SEED)
    order = sorted(candidates, key=lambda candidate: candidate != baseline)
    looking_end_us = _now_us() + budget_us * (_LOOKING_SHARE if mode is Mode.QUICK else 1.0)
    trials, failed = _first_looks(order, bench, looking_end_us)
    finalists = dict(sorted(trials.items(), key=lambda entry: (entry[0] != baseline, entry[1][1])))
    kept = {c: trial for c, (trial, _) in list(finalists.items())[: _FINALISTS if mode is Mode.QUICK else None]}
    check = ErrorCheck(problem, bench.device, seed=_SEED)
    if mode is Mode.FULL:  # no time is taken of what computes wrong
        errors = {candidate: check.errors(trial.run) for candidate, trial in kept.items()}
        timed = _timed(kept, errors, bench, end_us - _now_us())
    else:
        timed = _timed(kept, {}, bench, end_us - _now_us())
        timed = _checked(timed, kept, baseline, known, policy, check)
    best_us = min((look_us for _, look_us in trials.values()), default=1.0)
    return [timed.get(c) or failed.get(c) or _passed_over(c, trials, best_us) for c in order]


def _first_looks(
    candidates: Iterable[Candidate], bench: Bench, end_us: float
) -> tuple[dict[Candidate, tuple[Trial, float]], dict[Candidate, Finding]]:
    """Each candidate built and run twice; the second run's time is a first impression."""
    looked: dict[Candidate, tuple[Trial, float]] = {}
    failed: dict[Candidate, Finding] = {}
    for candidate in candidates:
        if looked and _now_us() > end_us:
            break
        try:
            trial = Trial(candidate, bench)
            call = trial.calls()[0]
            _run_us(call, bench)
            looked[candidate] = trial, _run_us(call, bench)
        except (ConvwrightError, RuntimeError, NotImplementedError, ValueError) as error:
            if bench.device.type == "cuda":
                torch.cuda.synchronize()  # raises again where the device itself is at fault
            failed[candidate] = Finding(candidate, failure=_one_line(error))
    return looked, failed


def _timed(
    trials: Mapping[Candidate, Trial], errors: Mapping[Candidate, tuple[KindError, ...]], bench: Bench, budget_us: float
) -> dict[Candidate, Finding]:
    """Device, host and packing time of each, all interleaved in one run of the timer."""
    calls: dict[str, Call] = {f"run {c.id}": trial.calls() for c, trial in trials.items()}
    calls |= {f"pack {c.id}": call for c, trial in trials.items() if (call := trial.preparation()) is not None}
    cuda = bench.device.type == "cuda"
    clock: Clock = CudaGraphClock(bench.device) if cuda else WallClock()
    device = measure_calls(calls, clock=clock, budget_us=max(budget_us, 1.0) * (0.7 if cuda else 1.0))
    host: dict[str, Timing] = {}
    if cuda:
        eager = {name: call for name, call in calls.items() if name.startswith("run ")}
        host = measure_calls(eager, clock=HostClock(bench.device), budget_us=max(budget_us, 1.0) * 0.3)
    facts = (*conditions(bench.facts), ("cache", bench.cache), ("clock", type(clock).__name__))
    return {
        candidate: Finding(
            candidate,
            Measurement(
                device_us=device[f"run {candidate.id}"].call_us,
                host_us=_interval(host.get(f"run {candidate.id}")),
                prepare_us=_interval(device.get(f"pack {candidate.id}")),
                errors=errors.get(candidate, ()),
                workspace_bytes=trial.plan.workspace_bytes,
                samples=device[f"run {candidate.id}"].samples,
                conditions=facts,
            ),
        )
        for candidate, trial in trials.items()
    }


def _checked(
    timed: dict[Candidate, Finding],
    trials: Mapping[Candidate, Trial],
    baseline: Candidate | None,
    known: Mapping[str, Finding],
    policy: Policy,
    check: ErrorCheck,
) -> dict[Candidate, Finding]:
    """Errors of the baseline and of the fastest, then of the next where that one is wrong, until one is right."""
    timed = dict(timed)
    if baseline in timed:
        timed[baseline] = _with_errors(timed[baseline], trials[baseline], check)
    base = timed.get(baseline) if baseline in timed else known.get(baseline.id) if baseline else None
    unchecked = sorted((c for c in timed if c != baseline), key=lambda c: eager_us(timed[c], policy).value)
    for candidate in unchecked:
        timed[candidate] = _with_errors(timed[candidate], trials[candidate], check)
        rows = [timed[candidate], *([base] if base else [])]
        if choose(rows, base, policy)[0].reason.startswith("the winner"):
            break
    return timed


def _with_errors(finding: Finding, trial: Trial, check: ErrorCheck) -> Finding:
    return replace(finding, measurement=replace(_measured(finding), errors=check.errors(trial.run)))


def _measured(finding: Finding) -> Measurement:
    assert finding.measurement is not None
    return finding.measurement


def _passed_over(candidate: Candidate, looked: Mapping[Candidate, tuple[Trial, float]], best_us: float) -> Finding:
    if candidate in looked:
        return Finding(candidate, note=f"about {looked[candidate][1] / best_us:.1f}x the best at a first look")
    return Finding(candidate, note="was not tried: the budget was spent")


def _run_us(call: Callable[[], object], bench: Bench) -> float:
    start_us = _now_us()
    call()
    if bench.device.type == "cuda":
        torch.cuda.synchronize(bench.device)
    return _now_us() - start_us


def _interval(timing: Timing | None) -> Interval | None:
    return None if timing is None else timing.call_us


def _one_line(error: BaseException) -> str:
    return f"failed: {str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__}"


def _now_us() -> float:
    return time.perf_counter_ns() / 1e3
