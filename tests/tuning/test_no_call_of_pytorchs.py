"""int8 and fp8, for which PyTorch has no call: candidates are held against the bound alone, and the words say so."""

from __future__ import annotations

from dataclasses import replace

import pytest

from convwright.core.dtype import Arithmetic
from convwright.core.finding import Finding, KindError
from convwright.core.policy import Policy
from convwright.core.problem import ConvProblem
from convwright.errors import Refused
from convwright.report.winner import winner
from convwright.settings import Mode
from convwright.tuning.choose import choose
from convwright.tuning.findings import Findings
from convwright.tuning.keeping.store import Store
from convwright.tuning.session import Session
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


def test_inside_a_capture_only_what_was_chosen_before_serves(monkeypatch: pytest.MonkeyPatch) -> None:
    with Store.open(None) as store:
        session = Session(Mode.OFF, store)
        before = session.choose(PROBLEM, CPU, Policy(), None)
        monkeypatch.setattr("convwright.tuning.session.capturing", lambda device: True)
        assert session.choose(PROBLEM, CPU, Policy(), None) == before
        other = replace(PROBLEM, y=replace(PROBLEM.y, dtype=PROBLEM.dtype.outputs[0]))
        with pytest.raises(Refused, match=r"nothing was chosen for .* before the capture"):
            session.choose(other, CPU, Policy(), None)
