"""int8 and fp8, for which PyTorch has no call: candidates are held against the bound alone, and the words say so."""

from __future__ import annotations

import re
from dataclasses import replace
from functools import partialmethod

import pytest
import torch

from convwright.core.candidate import Candidate
from convwright.core.direction import Role
from convwright.core.dtype import Arithmetic
from convwright.core.finding import Finding, KindError
from convwright.core.policy import Policy
from convwright.core.problem import ConvProblem
from convwright.errors import Refused
from convwright.report.winner import winner
from convwright.settings import Mode
from convwright.store.store import Store
from convwright.tuning.choose import choose
from convwright.tuning.find import find
from convwright.tuning.findings import Findings
from convwright.tuning.session import Session
from convwright.tuning.trials.trial import Trial
from convwright.tuning.unmeasured import unmeasured
from tuning.made import CPU, finding

PROBLEM = ConvProblem.parse("mb2ic4ih8oc4kh3ph1 dt:int8:int8:int8")


def row(name: str, time_us: float, scaled_max: float) -> Finding:
    made = finding(name, time_us, arithmetic=Arithmetic.INT8)
    assert made.measurement is not None
    errors = (KindError("normal", 0.0, scaled_max), KindError("large", 0.0, 0.0))
    return replace(
        made,
        candidate=replace(made.candidate, problem=PROBLEM),
        measurement=replace(made.measurement, errors=errors),
    )


def test_the_fastest_that_is_exact_wins() -> None:
    verdicts = choose([row("a/off-by-one", 1.0, 2.0), row("a/right", 9.0, 1.0)], None, Policy())
    assert [(v.finding.candidate.id, v.won) for v in verdicts] == [("a/right", True), ("a/off-by-one", False)]
    assert verdicts[0].reason == "the winner: PyTorch has no call of its own for this"
    assert verdicts[1].reason == "largest scaled error on normal data is 2, at most 1 is explained"


def test_nobody_is_told_that_conv2d_would_search() -> None:
    unmeasured = replace(row("a/right", 9.0, 1.0), measurement=None, note="was not measured")
    for problem, told in ((PROBLEM, False), (ConvProblem.parse("mb2ic4ih8oc4kh3ph1"), True)):
        of_it = replace(unmeasured, candidate=replace(unmeasured.candidate, problem=problem))
        verdicts = choose([of_it], None, Policy())
        lines = winner(Findings(problem, CPU, Policy(), Mode.HEURISTIC, verdicts, (), None))
        assert ("conv2d" in " ".join(lines)) is told


def listed(wrong: str | None = None) -> Findings:
    """All that there is for the problem; ``wrong`` is what was measured and is off by one."""
    with Store.open(None) as store:
        found = find(PROBLEM, CPU, Policy(), mode=Mode.HEURISTIC, store=store)
    of_it = row("a/wrong", 1.0, 2.0).measurement
    rows = [replace(v.finding, measurement=of_it if v.finding.candidate.id == wrong else None) for v in found.verdicts]
    return replace(found, verdicts=choose(rows, None, found.policy))


def test_what_was_measured_and_found_wrong_does_not_serve_for_want_of_others() -> None:
    first, second = (verdict.finding.candidate for verdict in listed().verdicts[:2])
    found = listed(wrong=first.id)
    assert found.verdicts[0].finding.candidate == first
    assert unmeasured(found, None) == second


def test_what_nothing_was_measured_of_serves_only_where_it_is_right(monkeypatch: pytest.MonkeyPatch) -> None:
    found = listed()
    first, second = (verdict.finding.candidate for verdict in found.verdicts[:2])
    assert unmeasured(found, None) == first
    monkeypatch.setattr(Trial, "run", partialmethod(run_off_by_one, first))
    with torch.autocast("cpu"):
        assert unmeasured(found, None) == second
    monkeypatch.setattr(Trial, "run", run_without_memory)
    with pytest.raises(Refused, match=f"is allowed: {re.escape(first.id)} .*no memory"):
        unmeasured(found, None)


def run_off_by_one(trial: Trial, wrong: Candidate, given: dict[Role, torch.Tensor], /) -> torch.Tensor:
    return right(trial, given) + (trial.candidate == wrong)


def run_without_memory(trial: Trial, given: dict[Role, torch.Tensor]) -> torch.Tensor:
    raise torch.OutOfMemoryError("no memory")


right = Trial.run


def test_inside_a_capture_only_what_was_chosen_before_serves(monkeypatch: pytest.MonkeyPatch) -> None:
    with Store.open(None) as store:
        session = Session(Mode.OFF, store)
        before = session.answer(PROBLEM, CPU, Policy(), None, None).captured
        monkeypatch.setattr("convwright.tuning.session.capturing", lambda device: True)
        assert session.answer(PROBLEM, CPU, Policy(), None, None).captured == before
        other = replace(PROBLEM, y=replace(PROBLEM.y, dtype=PROBLEM.dtype.outputs[0]))
        with pytest.raises(Refused, match=r"nothing was chosen for .* before the capture"):
            session.answer(other, CPU, Policy(), None, None)
