"""Quick timing: build a candidate and run it a few times."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from math import inf

import torch

from convwright.core.candidate import Candidate
from convwright.core.finding import Finding
from convwright.core.policy import Policy, Weights
from convwright.errors import ConvwrightError, first_line
from convwright.measuring.clock import queued_us
from convwright.measuring.disturbances.background import Background
from convwright.measuring.disturbances.waiting import MOST_WAITING, Waiting
from convwright.shortage import is_shortage, shortage
from convwright.tuning import listing
from convwright.tuning.budget import Budget
from convwright.tuning.choose import is_torch
from convwright.tuning.trials.doubt import unstable
from convwright.tuning.trials.trial import Bench, Call, Trial

# Exceptions that count as a candidate's own failure. A fault of the device does not: it is raised again.
FAILURES = (ConvwrightError, RuntimeError, NotImplementedError, ValueError, OSError, MemoryError)

# Further runs after the first, which loads and allocates, if they are short.
_RUNS = 3
_SHORT_US = 1000.0
# PyTorch's first run may take this many times longer on the host, since libraries load kernels only then.
_LOADING = 4.0
# A launch that takes at most this share of a run is hidden behind it.
_HIDDEN = 0.5
# A GPU spins for this many times the host's last launch time, so that it never waits for a launch.
_AHEAD = 2.0
# If other work had the cores meanwhile, runs are repeated until one is undisturbed: at most _MOST_AGAIN times, while
# _LEAST_LEFT of the budget is left.
_MOST_AGAIN, _LEAST_LEFT = 8, 0.5


@dataclass(frozen=True, slots=True)
class QuickTiming:
    """``runs_us`` are the times of all runs after the first; on a GPU, of the device alone. For a very slow candidate
    it is the first run. ``host_us`` is the host time of a launch, ``packing_us`` the device time of packing a weight.
    ``disturbed`` means that other work had the cores in each run. ``cold`` means that there was only the first run, in
    which a library may have loaded something."""

    trial: Trial
    runs_us: tuple[float, ...]
    host_us: float = 0.0
    packing_us: float = 0.0
    disturbed: bool = False
    cold: bool = False

    @property
    def look_us(self) -> float:
        return min(self.runs_us)

    @property
    def call_us(self) -> float:
        """How long one call takes when many are made in a row."""
        return max(self.look_us, self.host_us)

    def cost_us(self, policy: Policy) -> float:
        """The time that ``policy`` counts, as far as a quick timing shows."""
        return self.look_us + (self.packing_us if policy.weights is Weights.CHANGING else 0.0)


class QuickTimings:
    """All quick timings so far. A run longer than ``patience_us`` is not repeated. ``best_us`` is the least time of the
    candidates that may be chosen: not PyTorch's own call with the other TF32 flag, and not those ``ruled_out``. With
    ``tolerate_load`` it does not matter whether other work has the cores."""

    def __init__(
        self,
        bench: Bench,
        budget: Budget,
        policy: Policy,
        trying: Callable[[Candidate], AbstractContextManager[None]],
        *,
        patience_us: float = float("inf"),
        tolerate_load: bool = False,
    ) -> None:
        self.bench, self.budget = bench, budget
        self.looked: dict[Candidate, QuickTiming] = {}
        self.failed: dict[Candidate, Finding] = {}
        self.ruled_out: set[Candidate] = set()
        self._permitted: dict[Candidate, float] = {}
        self.patience_us, self._policy, self._trying = patience_us, policy, trying
        # Other work on the host does not affect a GPU's times.
        self._waiting = Waiting() if bench.device.type == "cpu" and not tolerate_load else None
        self._background = Background()

    def at(self, candidate: Candidate) -> QuickTiming | None:
        """Build a candidate and run it; None, with a finding that gives the reason, if it fails. Packed weights and
        bound calls are dropped, since most candidates never run again."""
        try:
            with self._trying(candidate):
                trial = Trial(candidate, self.bench)
                look = self._at(trial)
        except FAILURES as error:
            self.failed[candidate] = failure(candidate, error, self.bench.device)
            return None
        trial.let_go()
        self.looked[candidate] = look
        trial.look_us = look.look_us
        if listing.objection(candidate, self._policy) is None:
            self._permitted[candidate] = look.cost_us(self._policy)
        return look

    @property
    def best_us(self) -> float:
        return min((us for candidate, us in self._permitted.items() if candidate not in self.ruled_out), default=inf)

    def _at(self, trial: Trial) -> QuickTiming:
        call = trial.call()
        if self.bench.device.type == "cuda":
            return self._on_gpu(trial, call)
        self._is_disturbed()  # discard what came before
        runs = [self._run_us(call)]
        # All others are compared with PyTorch's own call, so its one-time costs must not count.
        cold = runs[0] > self.patience_us * (_LOADING if is_torch(trial.candidate) else 1.0)
        if not cold:
            runs = [self._run_us(call)]
        while len(runs) < _RUNS and sum(runs) < _SHORT_US:
            runs.append(self._run_us(call))
        disturbed, most = self._is_disturbed(), len(runs) + _MOST_AGAIN
        while disturbed and len(runs) < most and self.budget.has(_LEAST_LEFT):
            run_us, cold = self._run_us(call), False
            disturbed = self._is_disturbed()
            runs = [*runs, run_us] if disturbed else [run_us]
        return QuickTiming(trial, tuple(runs), disturbed=disturbed, cold=cold)

    def _on_gpu(self, trial: Trial, call: Call) -> QuickTiming:
        """Device and host time of a call; the wall time of a short call contains both."""
        with torch.cuda.device(self.bench.device):
            host_us, run_us = self._launched_us(call)
            if is_torch(trial.candidate) and self._is_loading(host_us) and run_us - host_us <= self.patience_us:
                # Libraries load kernels for PyTorch's own call once, whoever makes it: do not count that.
                first_us, (host_us, run_us) = run_us, self._launched_us(call)
                self.budget.give_back(max(first_us - run_us, 0.0))
            if run_us - host_us > self.patience_us or self._is_loading(host_us):
                return QuickTiming(trial, (run_us,), cold=True)
            host_us, run_us = self._launched_us(call)
            if run_us >= _SHORT_US and host_us < _HIDDEN * run_us:
                return QuickTiming(trial, (run_us,), host_us)
            runs, host_us = self._apart(call, host_us)
            packing = trial.preparation() if self._policy.weights is Weights.CHANGING else None
            if packing is None:
                return QuickTiming(trial, runs, host_us)
            packs, _ = self._apart(packing, self._launched_us(packing)[0])
            return QuickTiming(trial, runs, host_us, min(packs))

    def _is_loading(self, host_us: float) -> bool:
        return host_us > _LOADING * self.patience_us

    def _apart(self, call: Call, host_us: float) -> tuple[tuple[float, ...], float]:
        """Times of the device alone, and the least of the host, which took ``host_us`` before."""
        hosts_us = [host_us]

        def launch() -> None:
            begun_us = self.budget.now_us()
            call()
            hosts_us.append(self.budget.now_us() - begun_us)

        runs = tuple(queued_us(launch, _AHEAD * host_us) for _ in range(_RUNS - 1))
        return runs, min(hosts_us)

    def _launched_us(self, call: Call) -> tuple[float, float]:
        """When the host has launched a call, and when the device has finished it."""
        begun_us = self.budget.now_us()
        call()
        launched_us = self.budget.now_us()
        torch.cuda.synchronize(self.bench.device)
        return launched_us - begun_us, self.budget.now_us() - begun_us

    def cost_us(self, candidate: Candidate) -> float:
        """The time of a candidate that counts, as far as its quick timing shows."""
        return self.looked[candidate].cost_us(self._policy)

    def _is_disturbed(self) -> bool:
        """Whether other work had the cores since the last call of this."""
        share = None if self._waiting is None else self._waiting.share()
        return share is not None and share >= MOST_WAITING

    def _run_us(self, call: Call) -> float:
        begun_us = self.budget.now_us()
        call()
        return self.budget.now_us() - begun_us

    def passed_over(self, candidate: Candidate) -> Finding:
        """The finding of a candidate with only a quick timing."""
        if self.looked[candidate].disturbed:
            return Finding(candidate, note=self.unstable(candidate))
        least_us = min(map(self.cost_us, self.looked)) if self.best_us == inf else self.best_us
        times = self.cost_us(candidate) / max(least_us, 1e-3)
        return Finding(candidate, note=f"about {times:.1f}x the best at a first look")

    def unstable(self, candidate: Candidate) -> str:
        """The sentence about a candidate all of whose runs were disturbed."""
        look = self.looked[candidate]
        said = f"a call took {look.look_us / 1e3:.3g} ms at a first look, the shortest of {len(look.runs_us)}"
        return unstable(said, self._background.causes())


def failure(candidate: Candidate, error: BaseException, device: torch.device) -> Finding:
    """A candidate's exception as its finding."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)  # raises again if the device itself has a fault
    if is_shortage(error):
        return Finding(candidate, note=shortage(error))  # lack of memory is not the candidate's fault
    return Finding(candidate, failure=f"failed: {first_line(error)}")


def none_had(candidates: Iterable[Candidate], error: BaseException) -> list[Finding]:
    """The findings of candidates whose operands did not fit into memory; any other error is raised again."""
    if not is_shortage(error):
        raise error
    return [Finding(candidate, note=shortage(error)) for candidate in candidates]
