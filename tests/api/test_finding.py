"""`find` from Python: what it takes and refuses, the store that it uses, and what it would ignore is an error."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

import convwright as cw
from convwright.core.policy import Policy
from convwright.errors import BadInput, StoreWarning
from convwright.measuring.hardware.machine import device_facts
from convwright.store.store import Store
from convwright.tuning.listing import fingerprint
from tuning.made import CPU, PROBLEM, FakeTuner, measurement

TEXT = "ic4ih8oc4kh3"
GEMM = "reference/gemm"
TORCH = "torch/default"
NOWHERE = pytest.mark.parametrize(
    ("asked", "why"),
    [
        ({"device": "h200"}, "NVIDIA H200 is not in this machine: nothing is measured"),
        ({"device": "cpu", "mode": "heuristic"}, "mode heuristic measures nothing"),
    ],
)


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> FakeTuner:
    return FakeTuner({GEMM: 10.0}).in_place(monkeypatch)


@NOWHERE
@pytest.mark.parametrize(
    ("given", "name"),
    [
        ({"budget_us": 1e6}, "`budget_us`"),
        ({"isolate": True}, "`isolate`"),
        ({"energy": True}, "`energy`"),
        ({"trust": "verify"}, "`trust` 'verify'"),
    ],
)
def test_what_would_be_ignored_is_a_mistake(asked: dict[str, Any], why: str, given: dict[str, Any], name: str) -> None:
    with pytest.raises(cw.BadInput) as error:
        cw.find(TEXT, **asked, **given)
    assert str(error.value) == f"{why}, so that {name} would be ignored"
    cw.find(TEXT, **asked, budget_us=None, isolate=False, energy=False, trust="trust")


@NOWHERE
def test_energy_is_an_objective_where_it_is_known(asked: dict[str, Any], why: str) -> None:
    policy = Policy(objective="energy")
    with Store.open(None) as store:
        with pytest.raises(cw.BadInput) as error:
            cw.find(TEXT, **asked, policy=policy, store=store)
        known = "no energy is known from before"
        assert str(error.value) == f"{why}, and {known}, so that objective energy would be ignored"
        facts = device_facts(asked["device"])
        first = cw.find(TEXT, **asked, store=store).verdicts[0].finding.candidate
        measured = replace(measurement(10.0), energy_mj=2.0)
        store.record(first.problem.key, facts.key, first.id, fingerprint(first, facts), measured, None)
        found = cw.find(TEXT, **asked, policy=policy, store=store)
        assert first.id in [each.finding.candidate.id for each in found.verdicts if each.finding.measurement]


@pytest.mark.parametrize("mode", ["heuristic", "quick"])
def test_who_is_told_of_progress_can_be_called(mode: str) -> None:
    with pytest.raises(
        cw.BadInput, match=r"^`progress` must be True, False or a function of \(done, total, what\), got 3$"
    ):
        cw.find(TEXT, device="cpu", mode=mode, progress=3)  # type: ignore[arg-type]


def test_find_takes_text_problems_and_tensors() -> None:
    text = "mb2ic4ih8oc4kh3ph1"
    x, w = torch.ones(2, 4, 8, 8), torch.ones(4, 4, 3, 3)
    found = [
        cw.find(text, device="cpu", mode="heuristic"),
        cw.find(cw.ConvProblem.parse(text), device="cpu", mode="heuristic"),
        cw.find(x, w, padding=1, mode="heuristic"),
    ]
    assert {each.problem for each in found} == {PROBLEM}
    backward = cw.find(x, w, padding=1, direction="backward_weight", mode="heuristic")
    assert backward.problem == PROBLEM.asking(cw.Direction.BACKWARD_WEIGHT)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"device": "cuda"}, "'cuda' was asked for, but PyTorch sees no CUDA device"),
        ({"device": "cuda:7"}, "'cuda:7' was asked for"),
        ({"device": "gtx480"}, "got 'gtx480'"),
        (
            {"device": "cpu", "mode": "slow"},
            "mode must be one of heuristic, predict, predict-top, quick, full, got 'slow'",
        ),
        ({"device": "cpu", "policy": 3}, "`policy` must be a Policy or None, got 3"),
        (
            {"device": "cpu", "store": 3},
            "`store` must be a Store, its path or URL, or None for this process's own, got 3",
        ),
        ({"device": "cpu", "budget_us": "x"}, "the budget must be a time above 0, got 'x'"),
        ({"device": "cpu", "budget_us": True}, "the budget must be a time above 0, got True"),
        ({"device": "cpu", "budget_us": float("nan")}, "the budget must be a time above 0, got nan s"),
        ({"device": "cpu", "budget_us": 0}, "the budget must be a time above 0, got 0 s"),
        ({"device": "cpu", "budget_us": -1}, "the budget must be a time above 0, got -1e-06 s"),
        ({"device": 0}, "`device` must be a name, such as 'cpu', 'cuda:0' or 'h200', got 0"),
    ],
)
def test_bad_questions_are_refused(arguments: dict[str, Any], words: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    with pytest.raises(BadInput, match=words):
        cw.find("ic4ih8oc4kh3", **arguments)


def test_a_tensor_needs_a_weight() -> None:
    with pytest.raises(BadInput, match="together with its weight, which is missing"):
        cw.find(torch.ones(1, 1, 4, 4))
    with pytest.raises(BadInput, match="`weight` must be a tensor, got 'w'"):
        cw.find(torch.ones(1, 1, 4, 4), "w")  # type: ignore[arg-type]


@pytest.mark.parametrize("what", [5, None, (1, 4, 8, 8)])
def test_only_problems_texts_and_tensors_are_searched(what: Any) -> None:
    with pytest.raises(BadInput, match=r"a problem, its text, an input tensor or an nn\.Conv… was expected, got"):
        cw.find(what)


def test_a_store_that_keeps_nothing_says_so(fake: FakeTuner, tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.touch()
    path = file / "findings.sqlite"
    why = f"{path} cannot be used: {file} is not a folder"
    with pytest.warns(StoreWarning, match=f"findings are kept in memory only, since {why}"):
        cw.find(PROBLEM, device=CPU, mode="quick", store=path)


def test_find_uses_the_store_it_is_given(fake: FakeTuner, tmp_path: Path) -> None:
    with Store.open(tmp_path / "mine.sqlite") as mine:
        cw.find(PROBLEM, device=CPU, mode="quick", store=mine)
        assert GEMM in mine.findings(PROBLEM.key, CPU.key)
    cw.find(PROBLEM, device=CPU, mode="quick")
    assert len(fake.calls) == 2


def test_there_is_no_choice_until_a_call_makes_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CONVWRIGHT_MODE", "quick")
    x, w = torch.randn(1, 4, 8, 8), torch.randn(4, 4, 3, 3)
    for _ in range(3):
        assert torch.equal(cw.conv2d(x, w), torch.nn.functional.conv2d(x, w))
    assert cw.last_choice() is None
    cw.conv2d(x, w, algorithm="reference/gemm")
    choice = cw.last_choice()
    assert choice is not None
    assert choice.candidate.id == "reference/gemm"
