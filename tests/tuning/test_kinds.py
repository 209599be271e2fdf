"""The search of problems that are no convolutions: one path from text to table, store and back."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from typing import Any

import pytest
from rich.console import Console

import convwright as cw
from convwright.backends import registry
from convwright.core.kinds.text import parse
from convwright.core.policy import Policy
from convwright.errors import BadInput, Refused
from convwright.report.tables.findings import print_findings
from convwright.settings import Mode
from convwright.store.store import Store
from convwright.tuning.asked import named
from convwright.tuning.find import find
from tuning.made import CPU
from tuning.made_backend import Made, Way
from tuning.made_kinds import WAYS

TEXT = 'pointwise "relu(a + b)" mb2ic4ih8 b:c'
PROBLEM = parse(TEXT)


@pytest.fixture
def store(made: Made, monkeypatch: pytest.MonkeyPatch) -> Iterator[Store]:
    WAYS.clear()
    WAYS.update({"fast": Way(500.0), "faster": Way(400.0, wrong=True), "slow": Way(1500.0)})
    own = {"torch": "tuning.made_kinds:TimedTorch", "own": "tuning.made_kinds:TimedOwn"}
    monkeypatch.setitem(registry._OF_KIND, "pointwise", own)  # type: ignore[arg-type]
    with Store.open(None) as opened:
        yield opened


@pytest.mark.parametrize("mode", [Mode.QUICK, Mode.FULL])
def test_the_fastest_that_is_right_wins_and_is_remembered(store: Store, mode: Mode) -> None:
    found = find(PROBLEM, CPU, Policy(), mode=mode, store=store)
    rows = {verdict.finding.candidate.id: verdict for verdict in found.verdicts}
    assert rows["own/fast"].won
    assert rows["own/fast"].reason == "the winner: 2.00x as fast as PyTorch's own call"
    assert not rows["own/faster"].allowed
    assert "relative L2 error on normal data is" in rows["own/faster"].reason
    assert [str(refusal.id) for refusal in found.refusals] == ["own/never"]
    WAYS["fast"] = Way(5000.0)
    again = find(PROBLEM, CPU, Policy(), mode=mode, store=store)
    assert again.choice is not None
    assert again.choice.remembered
    assert again.choice.candidate.id == "own/fast"
    assert [each.problem for each in store.problems()] == [PROBLEM.key]


def test_a_table_a_record_and_a_list_of_what_there_is(store: Store) -> None:
    listed = find(PROBLEM, CPU, Policy(), mode=Mode.HEURISTIC, store=store)
    assert [verdict.finding.candidate.id for verdict in listed.verdicts] == [
        "torch/default", "own/fast", "own/faster", "own/slow",
    ]  # fmt: skip
    found = find(PROBLEM, CPU, Policy(), mode=Mode.QUICK, store=store)
    written = io.StringIO()
    print_findings(found, Console(file=written, width=200))
    text = written.getvalue()
    assert text.startswith(PROBLEM.key)
    for words in ("own/fast", "the winner: 2.00x as fast", "1 refused:", "own/never: it is never there"):
        assert words in text
    record = json.loads(json.dumps(found.to_json()))
    assert (record["problem"], record["choice"], record["baseline"]) == (PROBLEM.key, "own/fast", "torch/default")
    assert parse(record["problem"]) == PROBLEM


def test_a_candidate_is_asked_for_by_its_name(store: Store) -> None:
    assert named("own/slow", PROBLEM, CPU, Policy()).id == "own/slow"
    with pytest.raises(Refused, match="it is never there"):
        named("own/never", PROBLEM, CPU, Policy())
    with pytest.raises(BadInput, match="for this problem there are own/fast, own/faster, own/slow, torch/default"):
        named("cudnn/fft", PROBLEM, CPU, Policy())


def test_the_public_function_takes_every_kind() -> None:
    found = cw.find(TEXT, device="cpu", mode="heuristic")
    assert found.problem == PROBLEM
    assert found.verdicts[0].finding.candidate.id == "torch/default"
    assert cw.find(PROBLEM, device="cpu", mode="heuristic").problem is PROBLEM
    assert not cw.find(TEXT, device="h200", mode="heuristic").choice
    for given, words in (
        ({"direction": "backward_data"}, "`direction` belongs to a convolution"),
        ({"stride": 2}, "`stride` belongs to an input and its weight"),
    ):
        asked: dict[str, Any] = {"mode": "heuristic", **given}
        with pytest.raises(BadInput, match=words):
            cw.find(TEXT, device="cpu", **asked)


def test_a_reason_is_given_for_every_kind() -> None:
    assert cw.why(TEXT, "torch/default", "cpu").serves
    reason = cw.why(TEXT, "torch/default", "h200")
    assert not reason.serves
    assert "needs a device of this machine" in reason.sentence
