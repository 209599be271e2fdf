"""Candidates → findings: build each, look at it once, time the promising side by side, check their errors."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import lru_cache
from math import inf

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
from convwright.tuning import listing
from convwright.tuning.choose import choose, eager_us
from convwright.tuning.trial import Bench, Trial

# In mode quick, this share of the budget goes into first looks, and so many candidates are then timed properly.
_LOOKING_SHARE = 0.4
_FINALISTS = 4
# In mode full, this share of the time that is left after the checks goes into timing all of them.
_HEATS_SHARE = 0.5
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
    """What was found out about each candidate. The baseline is looked at first.

    Mode ``quick`` times the few that look fastest and checks them in the order of their times until one is right.
    Mode ``full`` checks all, times all, and then the best and the baseline once more, as precisely as is left time.
    """
    order = sorted(candidates, key=lambda candidate: candidate != baseline)
    if not order:
        return []
    bench = Bench(problem, device, mode, seed=_SEED)
    _warm_up(device)
    start_us = _now_us()
    share = _LOOKING_SHARE if mode is Mode.QUICK else 1.0
    looked, failed = _first_looks(order, bench, start_us + budget_us * share)
    ranked = sorted(looked, key=lambda candidate: (candidate != baseline, looked[candidate][1]))
    check = ErrorCheck(problem, bench.device, seed=_SEED)
    if mode is Mode.QUICK:
        trials = {candidate: looked[candidate][0] for candidate in ranked[:_FINALISTS]}
        timed = _timed(trials, {}, bench, start_us + budget_us - _now_us())
        timed = _checked(timed, trials, baseline, known, policy, check)
    else:
        trials = {candidate: looked[candidate][0] for candidate in ranked}
        errors = {candidate: check.errors(trial.run) for candidate, trial in trials.items()}
        timed = _timed(trials, errors, bench, (start_us + budget_us - _now_us()) * _HEATS_SHARE)
        final = {candidate: trials[candidate] for candidate in _finalists(timed, baseline, policy)}
        timed |= _timed(final, errors, bench, start_us + budget_us - _now_us())
    best_us = min((look_us for _, look_us in looked.values()), default=1.0)
    return [timed.get(c) or failed.get(c) or _passed_over(c, looked, best_us) for c in order]


@lru_cache
def _warm_up(device: DeviceFacts) -> None:
    """Load every backend's libraries, once per process: that is no cost of the problem met first, nor of its budget."""
    tiny = ConvProblem.of((1, 8, 8, 8), (8, 8, 3, 3), layout="nhwc", dtype="fp16" if device.kind == "cuda" else "fp32")
    bench = Bench(tiny, device, Mode.QUICK, seed=_SEED)
    listed = listing.candidates(listing.direct(tiny, device, Policy()))
    _first_looks(listing.first_of_each(listed, Policy()), bench, inf)


def _finalists(timed: Mapping[Candidate, Finding], baseline: Candidate | None, policy: Policy) -> list[Candidate]:
    """The baseline and the best that are allowed."""
    verdicts = choose(list(timed.values()), timed.get(baseline) if baseline else None, policy)
    best = [verdict.finding.candidate for verdict in verdicts if verdict.allowed][:_FINALISTS]
    return best if baseline is None or baseline in best or baseline not in timed else [*best, baseline]


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
            call = trial.call()
            _run_us(call, bench)
            looked[candidate] = trial, _run_us(call, bench)
        except (ConvwrightError, RuntimeError, NotImplementedError, ValueError) as error:
            if bench.device.type == "cuda":
                torch.cuda.synchronize(bench.device)  # raises again where the device itself is at fault
            failed[candidate] = Finding(candidate, failure=_one_line(error))
    return looked, failed


def _timed(
    trials: Mapping[Candidate, Trial], errors: Mapping[Candidate, tuple[KindError, ...]], bench: Bench, budget_us: float
) -> dict[Candidate, Finding]:
    """Device, host and packing time of each, all interleaved in one run of the timer."""
    if not trials:
        return {}
    calls: dict[str, Call] = {f"run {c.id}": trial.call() for c, trial in trials.items()}
    calls |= {f"pack {c.id}": call for c, trial in trials.items() if (call := trial.preparation()) is not None}
    cuda = bench.device.type == "cuda"
    clock: Clock = CudaGraphClock(bench.device) if cuda else WallClock()
    device = measure_calls(calls, clock=clock, budget_us=max(budget_us, 1.0) * (0.7 if cuda else 1.0))
    host: dict[str, Timing] = {}
    if cuda:
        eager = {name: call for name, call in calls.items() if name.startswith("run ")}
        host = measure_calls(eager, clock=HostClock(bench.device), budget_us=max(budget_us, 1.0) * 0.3)
    facts = (*conditions(bench.facts), ("mode", str(bench.mode)), ("cache", "hot"), ("clock", type(clock).__name__))
    if isinstance(clock, CudaGraphClock) and clock.fallbacks:
        facts += (("timed by events", "; ".join(clock.fallbacks)),)
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
        if choose(rows, base, policy)[0].won:
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
