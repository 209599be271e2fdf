"""Energy, workspace among ties, and what is said where they cannot be had."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from convwright.core.candidate import Candidate
from convwright.core.finding import Finding, Interval
from convwright.core.policy import Objective, Policy
from convwright.errors import BadInput
from convwright.measuring.energy import Energy
from convwright.settings import Mode
from convwright.store.store import Store
from convwright.tuning.choose import choose
from convwright.tuning.find import Findings, find
from tuning.made import CPU, PROBLEM, finding
from tuning.made_backend import Made, MadePlan, Way

ENERGY = Policy(objective=Objective.ENERGY)
TIED = Policy(objective=Objective.TIME_THEN_WORKSPACE)


def drawing(name: str, time_us: float, energy_mj: float | None, halfwidth_mj: float = 0.0, **known: Any) -> Finding:
    row = finding(name, time_us, **known)
    assert row.measurement is not None
    return replace(row, measurement=replace(row.measurement, energy_mj=energy_mj, energy_halfwidth_mj=halfwidth_mj))


def reasons(*rows: Finding, policy: Policy) -> dict[str, str]:
    return {verdict.finding.candidate.id: verdict.reason for verdict in choose(rows, rows[0], policy)}


def test_least_energy_wins_though_it_takes_longer() -> None:
    rows = drawing("torch/default", 100.0, 10.0), drawing("a/slow", 150.0, 8.0), drawing("a/fast", 50.0, 12.0)
    assert reasons(*rows, policy=ENERGY) == {
        "a/slow": "the winner: 0.80x the energy of PyTorch's own call",
        "torch/default": "1.25x the winner's energy",
        "a/fast": "1.50x the winner's energy",
    }


def test_energy_within_what_the_counter_can_tell_is_no_win() -> None:
    rows = drawing("torch/default", 100.0, 10.0, 0.5), drawing("a/b", 50.0, 9.0, 0.5)
    assert choose(rows, rows[0], ENERGY)[0].finding is rows[0]
    assert "AMBIGUOUS: a/b may be better" in reasons(*rows, policy=ENERGY)["torch/default"]


def test_what_has_no_energy_is_not_chosen_for_it() -> None:
    rows = drawing("torch/default", 100.0, 10.0), drawing("a/b", 10.0, None)
    assert reasons(*rows, policy=ENERGY)["a/b"] == "its energy was not measured"
    unknown = drawing("torch/default", 100.0, None), drawing("a/b", 10.0, None)
    assert not any(verdict.won for verdict in choose(unknown, unknown[0], ENERGY))


def test_of_those_whose_times_are_a_tie_the_least_workspace_wins() -> None:
    rows = [
        finding("torch/default", 100.0),
        finding("a/fastest", 50.0, workspace_bytes=9000),
        finding("a/tied", 50.9, workspace_bytes=100),
        finding("a/slower", 52.0),
    ]
    verdicts = choose(rows, rows[0], TIED)
    assert [v.finding.candidate.id for v in verdicts] == ["a/tied", "a/fastest", "a/slower", "torch/default"]
    assert verdicts[1].reason == "0.98x the winner's time, a tie, and 9,000 bytes of workspace"
    assert choose(rows, rows[0], Policy())[0].finding.candidate.id == "a/fastest"


def test_a_tie_with_pytorchs_own_call_is_pytorchs() -> None:
    rows = finding("torch/default", 50.5), finding("a/b", 50.0, workspace_bytes=5)
    assert choose(rows, rows[0], TIED)[0].finding is rows[0]


def test_intervals_that_leave_it_open_are_said_to_be_ambiguous() -> None:
    rows = finding("torch/default", 100.0), finding("a/b", 90.0, halfwidth=0.2)
    assert reasons(*rows, policy=Policy())["torch/default"] == (
        "the winner, AMBIGUOUS: a/b may be better by more than a tie, but not surely"
    )


def search(mode: Mode = Mode.FULL, policy: Policy = Policy(), **asked: Any) -> Findings:
    return find(PROBLEM, CPU, policy, mode=mode, **({"budget_us": 5e6, "store": Store.open(None)} | asked))


@pytest.fixture
def no_counter(monkeypatch: pytest.MonkeyPatch) -> None:
    class Silent:
        source = "none"

        def read_mj(self) -> None:
            return None

    monkeypatch.setattr("convwright.tuning.search.counter_of", lambda device: Silent())


@pytest.mark.parametrize("asked", [{"policy": ENERGY}, {"energy": True}])
def test_where_nothing_counts_energy_that_is_said_before_anything_runs(
    made: Made, no_counter: None, asked: dict[str, Any]
) -> None:
    with pytest.raises(BadInput, match="energy cannot be measured here: this CPU has no counter"):
        search(**asked)
    assert made.built == []


def test_energy_is_measured_in_mode_full_only(made: Made) -> None:
    with pytest.raises(BadInput, match=r"energy needs mode full, .* got mode quick"):
        search(Mode.QUICK, ENERGY)
    search(Mode.HEURISTIC, ENERGY)


def test_energy_is_measured_of_the_best_and_decides(made: Made, monkeypatch: pytest.MonkeyPatch) -> None:
    class Counter:
        source = "made"

        def read_mj(self) -> float:
            return 0.0

    draws = {"torch/default": 10.0, "quick/fast": 12.0, "quick/frugal": 5.0}

    def energy_of(call: Any, clock: Any, counter: Any, *, seconds: float, idle_s: float) -> Energy:
        assert 1.0 <= seconds <= 5.0
        energy_mj = draws[call.func.candidate.id]
        return Energy(Interval(energy_mj, energy_mj - 0.1, energy_mj + 0.1), 1.0, None, 10, counter.source)

    monkeypatch.setattr("convwright.tuning.search.counter_of", lambda device: Counter())
    monkeypatch.setattr("convwright.tuning.trials.extras.counter_of", lambda device: Counter())
    monkeypatch.setattr("convwright.tuning.trials.extras.energy_of", energy_of)
    made.quick = {"fast": Way(500.0), "frugal": Way(800.0)}
    found = search(policy=ENERGY)
    assert found.choice is not None
    assert found.choice.candidate.id == "quick/frugal"
    measured = found.choice.measurement
    assert measured is not None
    assert (measured.energy_mj, measured.energy_halfwidth_mj) == (5.0, pytest.approx(0.1))
    assert dict(measured.conditions)["energy counted by"] == "made"
    with Store.open(None) as store:
        search(store=store)
        by_time = search(energy=True, store=store)  # all is known but the energy
    assert by_time.choice is not None
    assert by_time.choice.candidate.id == "quick/fast"
    assert by_time.choice.measurement is not None
    assert by_time.choice.measurement.energy_mj == 12.0


WORKSPACE = Policy(objective=Objective.WORKSPACE)


def test_reasons_speak_of_workspace_where_that_is_to_be_least() -> None:
    own, fast = finding("torch/default", 24_000.0), finding("a/fast", 10.0, errors=())
    said = "was timed, but its error was not looked at, since others need no more workspace"
    assert reasons(own, fast, policy=WORKSPACE)["a/fast"] == said
    assert reasons(own, fast, policy=Policy())["a/fast"].endswith("since others are faster")


def test_a_quick_search_for_little_workspace_looks_at_those_that_need_little(
    made: Made, monkeypatch: pytest.MonkeyPatch
) -> None:
    needs = {"quick/fast-0": 900, "quick/fast-1": 900, "quick/fast-2": 900, "quick/frugal": 10, "torch/default": 99}
    own_plan = MadePlan.__init__

    def plan(self: MadePlan, candidate: Candidate, way: Way) -> None:
        own_plan(self, candidate, way)
        self.workspace_bytes = needs[candidate.id]

    monkeypatch.setattr(MadePlan, "__init__", plan)
    made.quick = {"fast-0": Way(10.0), "fast-1": Way(11.0), "fast-2": Way(12.0), "frugal": Way(2000.0)}
    found = search(Mode.QUICK, WORKSPACE, budget_us=200_000.0)
    said = {verdict.finding.candidate.id: verdict.reason for verdict in found.verdicts}
    assert said["quick/frugal"] == "the winner: 10 bytes of workspace, PyTorch's own call needs 99"
    assert said["quick/fast-0"] == "was timed, but its error was not looked at, since others need no more workspace"
    assert said["quick/fast-2"] == "was not timed: it needs 900 bytes of workspace, and others no more"
