"""Measure candidates in another process, so that a crash or hang affects only one candidate."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch

from convwright import flags, torch_api
from convwright.core.candidate import Candidate
from convwright.core.device import DeviceFacts
from convwright.core.finding import Finding
from convwright.core.kinds.problem import Problem
from convwright.core.policy import Policy
from convwright.errors import BackendError
from convwright.settings import Mode
from convwright.tuning import listing
from convwright.tuning.budget import Budget
from convwright.tuning.trials.measure import measure_candidates as measure
from convwright.tuning.trials.search_input import Hooks, SearchInput, passed_over
from convwright.tuning.workers import TaskFailed, Worker, WorkerDied, WorkerNotStarted

# Limits for a candidate's quick timing, and for silence otherwise, in addition to twice the budget.
MOST_LOOKING_S, MOST_SILENT_S = 60.0, 120.0


class Switches(NamedTuple):
    """PyTorch's flags that affect candidates. ``strict`` asks for deterministic algorithms."""

    tf32: bool
    cudnn: bool
    onednn: bool
    benchmark: bool
    deterministic: bool
    strict: bool
    only_warns: bool

    @classmethod
    def now(cls) -> Switches:
        cudnn = torch.backends.cudnn
        return cls(
            flags.tf32_allowed(), bool(cudnn.enabled), flags.onednn_enabled(), bool(cudnn.benchmark),
            bool(cudnn.deterministic), torch.are_deterministic_algorithms_enabled(),
            torch.is_deterministic_algorithms_warn_only_enabled(),
        )  # fmt: skip

    def set(self) -> None:
        """Set them in this process, for good."""
        cudnn: Any = torch.backends.cudnn
        cudnn.enabled, cudnn.benchmark, cudnn.deterministic = self.cudnn, self.benchmark, self.deterministic
        if flags.tf32_allowed() != self.tf32:
            cudnn.conv.fp32_precision = "tf32" if self.tf32 else "ieee"
        torch_api.set_onednn_enabled(self.onednn)
        here = Switches.now()
        if (self.strict, self.only_warns) != (here.strict, here.only_warns):
            # This loads all of Inductor, which takes seconds, and leaves a folder.
            torch.use_deterministic_algorithms(self.strict, warn_only=self.only_warns)


@dataclass(frozen=True, slots=True)
class Request:
    """What to measure, and PyTorch's flags in the calling process. ``avoid`` lists candidates that ended an earlier
    process."""

    problem: Problem
    device: DeviceFacts
    policy: Policy
    baseline: Candidate | None
    known: Mapping[str, Finding]
    mode: Mode
    budget_us: float
    most_us: float
    energy: bool
    tolerate_load: bool
    candidates: tuple[Candidate, ...]
    avoid: frozenset[Candidate]
    threads: int
    switches: Switches


@dataclass(frozen=True, slots=True)
class Trying:
    """A message: this candidate is being tried, or None if that has ended."""

    candidate: Candidate | None


def measure_candidates(candidates: Iterable[Candidate], contest: SearchInput) -> list[Finding]:
    """Like ``measure``, in other processes: if one dies, the next continues without the candidate that ended it. Each
    has the whole budget; starting one takes some seconds more."""
    budget, hooks = contest.budget, contest.hooks
    left, failed, passed = dict[Candidate, None](), dict[Candidate, Finding](), list[Finding]()
    for candidate in candidates:
        here = listing.only_here(candidate)
        reason = f"was not measured: it {here}" if here else hooks.later(candidate) if candidate.compiles else None
        if reason is None:
            left[candidate] = None
        else:
            passed.append(passed_over(candidate, reason))
    own = contest.known_baseline()
    while left:
        request = Request(
            contest.problem, contest.device, contest.policy, contest.baseline,
            {} if own is None else {own.candidate.id: own}, contest.mode, budget.total_us, budget.most_us,
            hooks.energy, contest.tolerate_load, tuple(left), frozenset(failed), torch.get_num_threads(),
            Switches.now(),
        )  # fmt: skip
        tried = _Tried(hooks, budget.most_us)
        try:
            with budget.paused(), Worker(environment={"CONVWRIGHT_STORE": "none"}) as worker:
                found: list[Finding] = worker.ask("measure", request, hear=tried.hear, patience_s=tried.patience_s)
            return [*found, *failed.values(), *passed]
        except WorkerNotStarted as error:
            raise BackendError(f"the process that measures candidates {error}") from error
        except TaskFailed as error:
            raise BackendError(f"the process that measures candidates failed: {error}") from error
        except WorkerDied as died:
            if tried.candidate is None:
                note = f"was not measured: its process {died} while candidates were timed side by side"
                return [*(Finding(candidate, note=note) for candidate in left), *failed.values(), *passed]
            failed[tried.candidate] = Finding(tried.candidate, failure=f"failed: its process {died}")
            left.pop(tried.candidate, None)
    return [*failed.values(), *passed]


class _Tried:
    """The candidate that a child is trying at the moment."""

    def __init__(self, hooks: Hooks, budget_us: float) -> None:
        self.candidate: Candidate | None = None
        self._hooks, self._silent_s = hooks, MOST_SILENT_S + 2 * budget_us / 1e6

    def patience_s(self) -> float:
        return self._silent_s if self.candidate is None else MOST_LOOKING_S

    def hear(self, said: Any) -> None:
        if isinstance(said, Trying):
            self.candidate = said.candidate
        else:
            self._hooks.progress(*said)


def measure_here(say: Callable[[Any], None], request: Request) -> list[Finding]:
    """The child's task: measure, and report when each candidate's trial starts and ends."""
    torch.set_num_threads(request.threads)
    request.switches.set()

    @contextmanager
    def trying(candidate: Candidate) -> Iterator[None]:
        say(Trying(candidate))
        try:
            yield
        finally:
            say(Trying(None))

    def around(best: Candidate, goes_on: Callable[[], bool]) -> Iterator[Candidate]:
        seen = {*request.candidates, *request.avoid}
        for candidate in listing.variants(best, request.device, goes_on):
            if candidate not in seen and listing.objection(candidate, request.policy) is None:
                yield candidate

    hooks = Hooks(trying, lambda *said: say(said), request.energy, around=around)
    contest = SearchInput(
        request.problem, request.device, request.policy, request.baseline, request.known, request.mode,
        Budget(request.budget_us, most_us=request.most_us), hooks, request.tolerate_load,
    )  # fmt: skip
    return measure(request.candidates, contest)
