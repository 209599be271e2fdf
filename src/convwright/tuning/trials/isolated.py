"""The process in which candidates run that may take it with them: ``python -m convwright.tuning.trials.isolated``.

A request comes pickled on standard input; what happens goes, a JSON object a line, to the file descriptor that the
first argument names, so that whatever a library prints is no part of it.
"""

from __future__ import annotations

import json
import os
import pickle
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch

from convwright import flags
from convwright.core.candidate import Candidate
from convwright.core.finding import Finding
from convwright.core.kinds.problem import Problem
from convwright.core.policy import Policy
from convwright.measuring.hardware.machine import device_facts
from convwright.settings import Mode
from convwright.tuning import listing
from convwright.tuning.budget import Budget
from convwright.tuning.trials.candidates import measure_candidates
from convwright.tuning.trials.contest import Hooks

Say = Callable[[dict[str, Any]], None]


@dataclass(frozen=True, slots=True)
class Request:
    """What is to be measured, and how PyTorch was set where it was asked for. ``avoid`` names what took an earlier
    process with it."""

    problem: Problem
    device: str
    policy: Policy
    candidates: tuple[str, ...]
    avoid: tuple[str, ...]
    baseline: str | None
    known_baseline: Finding | None
    mode: Mode
    budget_us: float
    energy: bool
    threads: int
    switches: Switches


class Switches(NamedTuple):
    """PyTorch's, as far as they bear on what a candidate does. ``strict`` asks for deterministic algorithms."""

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
        """Let them hold in this process, for good."""
        cudnn: Any = torch.backends.cudnn
        cudnn.enabled, cudnn.benchmark, cudnn.deterministic = self.cudnn, self.benchmark, self.deterministic
        if flags.tf32_allowed() != self.tf32:
            cudnn.conv.fp32_precision = "tf32" if self.tf32 else "ieee"
        torch._C._set_mkldnn_enabled(self.onednn)
        here = Switches.now()
        if (self.strict, self.only_warns) != (here.strict, here.only_warns):
            # Which loads all of Inductor, for seconds, and leaves a folder behind.
            torch.use_deterministic_algorithms(self.strict, warn_only=self.only_warns)


def serve(request: Request, say: Say) -> None:
    """Measure, and say of each candidate when it is tried and when that has ended well."""
    torch.set_num_threads(request.threads)
    request.switches.set()
    device = device_facts(request.device)

    @contextmanager
    def trying(candidate: Candidate) -> Iterator[None]:
        say({"trying": candidate.id})
        try:
            yield
        finally:
            say({"tried": candidate.id})

    def progress(doing: str, done: int, of: int) -> None:
        say({"progress": [doing, done, of]})

    def around(best: Candidate) -> Iterator[Candidate]:
        for candidate in listing.variants(best, device):
            if candidate.id not in seen and listing.objection(candidate, request.policy) is None:
                yield candidate

    seen = {*request.candidates, *request.avoid}
    named = (listing.with_id(id_, request.problem, device, request.policy) for id_ in request.candidates)
    candidates = [candidate for candidate in named if candidate is not None]
    known = {request.baseline: request.known_baseline} if request.baseline and request.known_baseline else {}
    baseline = next((c for c in candidates if c.id == request.baseline), None)
    if baseline is None and request.known_baseline is not None:
        baseline = request.known_baseline.candidate
    hooks = Hooks(trying, progress, request.energy, around=around)
    found = measure_candidates(
        candidates, baseline, known, request.problem, device, request.policy,
        mode=request.mode, budget=Budget(request.budget_us), hooks=hooks,
    )  # fmt: skip
    say({"findings": [_as_data(finding) for finding in found]})


def _as_data(finding: Finding) -> dict[str, Any]:
    measured = None if finding.measurement is None else finding.measurement.to_json()
    return {"id": finding.candidate.id, "measurement": measured, "failure": finding.failure, "note": finding.note}


def main() -> None:
    with os.fdopen(int(sys.argv[1]), "w", buffering=1) as answers:
        serve(pickle.load(sys.stdin.buffer), lambda message: print(json.dumps(message), file=answers))


if __name__ == "__main__":
    main()
