"""Findings made by hand, and a tuner that measures nothing."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any, Self

import pytest

from convwright.core.candidate import Candidate, Config, Source
from convwright.core.device import DeviceFacts
from convwright.core.direction import Direction
from convwright.core.dtype import Arithmetic
from convwright.core.finding import Finding, Interval, KindError, Measurement
from convwright.core.kinds.problem import Problem
from convwright.core.policy import Policy
from convwright.core.problem import ConvProblem
from convwright.settings import Mode
from convwright.store.store import Store
from convwright.tuning import run as tuner
from convwright.tuning import session as sessions
from convwright.tuning.findings import Findings
from convwright.tuning.session import Choice, Session
from convwright.tuning.trials.search_input import SearchInput

PROBLEM = ConvProblem.of((2, 4, 8, 8), (4, 4, 3, 3), padding=1)
CPU = DeviceFacts("this CPU", "cpu", "any", torch_name="cpu", threads=1, memory_bytes=1 << 40)
GOOD = (KindError("normal", 1e-7, 1.0), KindError("positive", 1e-8, 0.1))
WRONG = (KindError("normal", 0.3, 1e6), KindError("positive", 0.2, 1e6))


def candidate(
    name: str = "reference/gemm",
    config: Config = (),
    *,
    arithmetic: Arithmetic = Arithmetic.FP32,
    workspace_bytes: int | None = 0,
    deterministic: bool | None = True,
) -> Candidate:
    backend, _, algorithm = name.partition("/")
    return Candidate(PROBLEM, backend, algorithm, config, arithmetic, workspace_bytes, deterministic, Source.RULE)


def measurement(
    time_us: float,
    *,
    halfwidth: float = 0.001,
    errors: tuple[KindError, ...] = GOOD,
    workspace_bytes: int = 0,
    prepare_us: float | None = None,
) -> Measurement:
    def around(value: float | None) -> Any:
        return None if value is None else Interval(value, value * (1 - halfwidth), value * (1 + halfwidth))

    return Measurement(around(time_us), around(prepare_us), errors, workspace_bytes, 10, ())


def finding(name: str, time_us: float, config: Config = (), **known: Any) -> Finding:
    """A measured candidate; what is known of it goes to the candidate or the measurement, whichever has it."""
    about = {key: known.pop(key) for key in ("arithmetic", "deterministic") if key in known}
    return Finding(candidate(name, config, **about), measurement(time_us, **known))


class Compiled:
    """Stands for what compiles ahead of a search: the one kernel of that name is there, no other will come."""

    def __init__(self, id_: str) -> None:
        self._id = id_

    def of(self, problem: Problem) -> list[Candidate]:
        return []

    def is_built(self, candidate: Candidate) -> bool:
        return candidate.leaf.id == self._id

    def reason_to_pass(self, candidate: Candidate) -> str | None:
        return None if self.is_built(candidate) else "others promised more"

    def wait(self) -> bool:
        return False


class FakeTuner:
    """Stands for ``measure_candidates``: gives each candidate the time that ``times_us`` says, 100 µs otherwise.

    ``calls`` holds what was to be measured at each call; problems inside rewrites are left out. The errors of
    ``unchecked`` are not looked at.
    """

    def __init__(self, times_us: Mapping[str, float] | None = None) -> None:
        self.times_us = dict(times_us or {})
        self.unchecked: set[str] = set()
        self.doubt: str | None = None
        self.calls: list[list[str]] = []

    def __call__(self, candidates: Iterable[Candidate], contest: SearchInput) -> list[Finding]:
        listed = list(candidates)
        if contest.problem.asking(Direction.FORWARD) == PROBLEM:
            self.calls.append([each.id for each in listed])
        return [Finding(each, self._measured(each)) for each in listed]

    def in_place(self, monkeypatch: pytest.MonkeyPatch) -> Self:
        """Searches measure by this from now on, also those of calls on a CPU."""
        monkeypatch.setattr(sessions, "SEARCHED", ("cpu", "cuda"))
        monkeypatch.setattr(tuner, "measure_candidates", self)
        monkeypatch.setattr(tuner, "glance", self.glance)
        return self

    def glance(self, candidates: Iterable[Candidate], contest: Any) -> list[Candidate]:
        """Stands for first looks: by the times that it gives."""
        return sorted(candidates, key=lambda each: self.times_us.get(each.id, 100.0))

    def _measured(self, each: Candidate) -> Measurement:
        errors = () if each.id in self.unchecked else GOOD
        time_us = self.times_us.get(each.id, 100.0)
        made = measurement(time_us, errors=errors, workspace_bytes=each.workspace_bytes or 0)
        return replace(made, doubt=self.doubt)


def chosen(found: Findings) -> str | None:
    return found.choice.candidate.id if found.choice else None


def reasons(found: Findings) -> dict[str, str]:
    return {verdict.finding.candidate.id: verdict.reason for verdict in found.verdicts}


def choose(algorithm: str | None = None, *, mode: Mode = Mode.QUICK, policy: Policy = Policy()) -> Choice:
    """What a new session runs for ``PROBLEM`` inside a capture."""
    return Session(mode, Store.open(None)).answer(PROBLEM, CPU, policy, algorithm, None).captured
