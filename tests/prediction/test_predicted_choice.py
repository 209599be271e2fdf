"""The choice by prediction, which is pure: who wins, who may not, and which candidates are worth running."""

from __future__ import annotations

from dataclasses import replace
from math import inf

import pytest

from convwright.core.candidate import Candidate
from convwright.core.finding import Interval
from convwright.core.policy import Objective, Policy
from convwright.core.predictor import Prediction
from convwright.prediction.predicted_choice import Predicted, choose_predicted, worth_running
from tuning.made import candidate

POLICY = Policy()


def row(name: str, us: float, *, by: float = 1.1, known: bool = True, workspace: int = 0, mj: float | None = None,
        objection: str | None = None, rounds: bool = False) -> Predicted:  # fmt: skip
    energy = None if mj is None else Interval(mj, mj, mj)
    made = replace(candidate(name, workspace_bytes=workspace), rounds_sums=rounds)
    return Predicted(made, Prediction(Interval(us, us / by, us * by), known, energy_mj=energy), workspace, objection)


OWN = row("torch/default", 10.0)


def winner(rows: list[Predicted], own: Predicted | None = OWN, policy: Policy = POLICY, **how: bool) -> str | None:
    verdicts = choose_predicted(rows, own, policy, **how)
    assert sum(verdict.won for verdict in verdicts) <= 1
    assert {verdict.predicted.candidate.id for verdict in verdicts} == {each.candidate.id for each in rows}
    return verdicts[0].predicted.candidate.id if verdicts and verdicts[0].won else None


def test_the_fastest_wins_unless_pytorchs_own_call_ties_with_it() -> None:
    assert winner([OWN, row("reference/gemm", 5.0), row("reference/fft", 7.0)]) == "reference/gemm"
    assert winner([OWN, row("reference/gemm", 9.9)]) == "torch/default"
    assert winner([row("reference/gemm", 9.9)], None) == "reference/gemm"
    assert winner([], None) is None


def test_what_is_not_allowed_does_not_win_and_says_why() -> None:
    rows = [OWN, row("reference/gemm", 5.0, objection="needs 9 bytes of workspace, 0 are allowed")]
    verdicts = choose_predicted(rows, OWN, POLICY)
    assert (verdicts[0].won, verdicts[1].allowed) == (True, False)
    assert verdicts[1].reason == "needs 9 bytes of workspace, 0 are allowed"
    assert winner([OWN, row("reference/gemm", 5.0, rounds=True)]) == "torch/default"
    assert winner([OWN, Predicted(candidate("reference/gemm"), None, 0)]) == "torch/default"


def test_a_careful_choice_takes_nothing_that_the_model_does_not_know() -> None:
    rows = [OWN, row("reference/gemm", 5.0, known=False)]
    assert winner(rows) == "reference/gemm"
    assert winner(rows, careful=True) == "torch/default"


def test_an_eager_call_weighs_the_host() -> None:
    rows = [OWN, row("reference/gemm", 5.0), row("reference/fft", 6.0)]

    def extra_us(each: Candidate) -> float:
        return 2.0 if each.algorithm == "gemm" else 0.5

    verdicts = choose_predicted(rows, OWN, POLICY, extra_us=extra_us)
    assert verdicts[0].predicted.candidate.id == "reference/fft"
    assert "an eager call accepts a quarter of what it saves" in verdicts[-1].reason


def test_objectives() -> None:
    rows = [OWN, row("reference/gemm", 5.0, workspace=900, mj=3.0), row("reference/fft", 5.05, workspace=8, mj=2.0)]
    for objective, best in (
        (Objective.TIME, "reference/gemm"), (Objective.TIME_THEN_WORKSPACE, "reference/fft"),
        (Objective.WORKSPACE, "torch/default"),
    ):  # fmt: skip
        assert winner(rows, policy=Policy(objective=objective)) == best
    energy = Policy(objective=Objective.ENERGY)
    assert winner([row("torch/default", 10.0, mj=9.0), *rows[1:]], None, policy=energy) == "reference/fft"
    assert choose_predicted([OWN], OWN, energy)[0].reason == "no energy can be predicted"


def test_the_reason_is_that_of_the_objective() -> None:
    own = row("torch/default", 10.0, mj=9.0)
    fft = row("reference/fft", 8.0, workspace=8, mj=3.0)
    gemm = row("reference/gemm", 5.0, workspace=9000, mj=4.5)
    told = {
        objective: [verdict.reason for verdict in choose_predicted([own, gemm, fft], own, Policy(objective=objective))]
        for objective in (Objective.TIME, Objective.ENERGY, Objective.WORKSPACE)
    }
    assert told == {
        Objective.TIME: [
            "the winner by prediction, 2.00x as fast as PyTorch's own call",
            "is predicted to take 1.60x the winner's time",
            "is predicted to take 2.00x the winner's time",
        ],
        Objective.ENERGY: [
            "the winner by prediction, 0.33x the energy of PyTorch's own call",
            "is predicted to take 1.50x the winner's energy",
            "is predicted to take 3.00x the winner's energy",
        ],
        Objective.WORKSPACE: [
            "the winner: nothing allowed needs less workspace",
            "needs 8 bytes of workspace",
            "needs 9,000 bytes of workspace",
        ],
    }


def test_those_whose_intervals_overlap_the_best_are_worth_running() -> None:
    rows = [row("a/far", 20.0), row("a/best", 5.0), row("a/near", 5.5), row("a/next", 6.0), row("a/fourth", 5.9)]
    verdicts = choose_predicted(rows, None, POLICY)
    assert [each.algorithm for each in worth_running(verdicts, POLICY)] == ["best", "near", "fourth"]
    assert [each.algorithm for each in worth_running(verdicts, POLICY, most=9)] == ["best", "near", "fourth", "next"]
    assert worth_running((), POLICY) == []


@pytest.mark.parametrize("us", [inf, 1e-9])
def test_extreme_times_do_not_confuse_it(us: float) -> None:
    assert winner([OWN, row("reference/gemm", us)]) in ("torch/default", "reference/gemm")
