"""A full search checks and times everything that time allows, and who wins has to win twice."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Container, Iterable
from dataclasses import replace
from typing import Any

import pytest

from convwright.core.candidate import Candidate
from convwright.core.device import DeviceFacts
from convwright.core.finding import Finding, Interval, Measurement
from convwright.core.policy import Policy
from convwright.settings import Mode
from convwright.store.store import Store
from convwright.tuning.find import Findings, find
from convwright.tuning.trials.side_by_side import Stopwatch
from convwright.tuning.trials.trial import Trial
from tuning.made import CPU, PROBLEM, chosen, reasons
from tuning.made_backend import Made, Way

OWN = "torch/default"


def search(budget_us: float = 5e6, store: Store | None = None, **policy: Any) -> Findings:
    return find(PROBLEM, CPU, Policy(**policy), mode=Mode.FULL, store=store or Store.open(None), budget_us=budget_us)


def measured(found: Findings, id_: str) -> Measurement:
    row = next(v.finding for v in found.verdicts if v.finding.candidate.id == id_)
    assert row.measurement is not None
    return row.measurement


def is_whole(found: Measurement) -> bool:
    """Whether its errors were looked for on the whole output."""
    return dict(found.conditions)["checked"].startswith("the output, on normal, ")


def test_everything_is_timed_and_checked_on_the_whole_output(made: Made) -> None:
    made.quick = {f"way-{i}": Way(500.0 + 100 * i) for i in range(8)}
    made.compiled = {"a": Way(450.0)}
    found = search()
    assert chosen(found) == "compiled/a"
    for verdict in found.verdicts:
        one = measured(found, verdict.finding.candidate.id)
        assert len(one.errors) == 6
        assert is_whole(one)
        assert one.device_us.value == pytest.approx(verdict.call_us, rel=0.01)


def test_what_a_library_loads_for_long_is_looked_at_where_that_is_a_quarter_of_the_budget(made: Made) -> None:
    made.quick = {"loaded": Way(100.0, build_us=2e6, links_us=2e6), "fast": Way(500.0)}
    found = search(budget_us=7e6)
    assert chosen(found) == "quick/fast"
    assert reasons(found)["quick/loaded"] == "was not tried: its first run may take a library 2,000 ms"
    assert chosen(search(budget_us=8.5e6)) == "quick/loaded"


def test_what_cannot_win_for_all_that_it_moves_is_looked_at_last(made: Made, monkeypatch: pytest.MonkeyPatch) -> None:
    def moving_us(candidate: Candidate, device: DeviceFacts) -> float:
        return 9000.0 if candidate.id == "quick/huge" else 100.0

    monkeypatch.setattr("convwright.prediction.physics.moving_us", moving_us)
    made.quick = {"huge": Way(10_000.0, build_us=100_000.0), "fast": Way(500.0), "late": Way(400.0)}
    found = search()
    assert made.built[:4] == [OWN, "quick/fast", "quick/late", "quick/huge"]
    assert measured(found, "quick/huge").device_us.value == pytest.approx(10_000.0, rel=0.01)


def test_the_best_are_timed_again_with_plans_that_are_built_anew(made: Made) -> None:
    made.quick = {f"way-{i}": Way(500.0 + 100 * i) for i in range(6)}
    found = search()
    assert chosen(found) == "quick/way-0"
    assert [made.built.count(f"quick/way-{i}") for i in range(6)] == [2, 2, 2, 2, 1, 1]
    assert made.built.count(OWN) == 2


def test_a_winner_that_does_not_win_again_is_no_winner(made: Made) -> None:
    made.quick = {"lucky": Way(500.0, later_us=990.0)}
    store = Store.open(None)
    found = search(store=store)
    assert chosen(found) == OWN
    assert measured(found, "quick/lucky").device_us.value == pytest.approx(990.0)
    again = search(store=store)
    assert reasons(again) == reasons(found), "the later time is what is remembered"


def test_who_comes_after_a_lucky_one_has_to_win_twice_as_well(made: Made) -> None:
    made.quick = {"lucky": Way(300.0, later_us=990.0), "steady": Way(500.0)}
    assert chosen(search()) == "quick/steady"


def test_after_those_that_did_not_win_twice_none_wins_that_won_once(made: Made) -> None:
    made.quick = {f"lucky-{i}": Way(300.0 + i, later_us=990.0) for i in range(4)} | {"other": Way(500.0)}
    store = Store.open(None)
    found = search(store=store)
    assert chosen(found) == OWN
    assert reasons(found)["quick/other"] == (
        "AMBIGUOUS: it was timed once only, since those that seemed better did not win twice"
    )
    assert reasons(search(store=store)) == reasons(found), "the doubt is remembered"


def test_what_is_slow_is_timed_by_its_look_alone(made: Made) -> None:
    made.quick = {"fast": Way(500.0), "slow": Way(20_000.0), "very-slow": Way(900_000.0)}
    found = search()
    slow = measured(found, "quick/slow")
    assert slow.samples == 1
    assert slow.device_us.value == pytest.approx(20_000.0)
    assert slow.errors == ()
    assert reasons(found)["quick/slow"] == "about 40.0x the best at a first look"
    assert "x the best at a first look" in reasons(found)["quick/very-slow"]


@pytest.mark.parametrize("count", [1, 10, 60])
@pytest.mark.parametrize("time_us", [100.0, 5000.0, 40_000.0])
def test_the_budget_is_kept_within_a_fifth(made: Made, count: int, time_us: float) -> None:
    made.own_us = time_us
    made.quick = {f"way-{i}": Way(time_us * (0.8 + i / 5), build_us=1000.0) for i in range(count)}
    search(budget_us=5e6)
    assert made.time() <= 1.2 * 5e6


def test_wrong_candidates_are_said_to_be_wrong(made: Made) -> None:
    made.quick = {"wrong": Way(100.0, wrong=True), "right": Way(500.0)}
    found = search()
    assert chosen(found) == "quick/right"
    assert "relative L2 error on normal data is" in reasons(found)["quick/wrong"]


def test_memory_is_measured_of_the_best(made: Made, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("convwright.tuning.trials.extras.peak_extra_bytes", lambda call, device: 4096)
    made.quick = {f"way-{i}": Way(500.0 + 100 * i) for i in range(8)}
    found = search()
    assert measured(found, "quick/way-0").peak_bytes == 4096
    assert measured(found, OWN).peak_bytes == 4096
    assert measured(found, "quick/way-7").peak_bytes is None


def test_what_is_asked_for_is_told_as_it_is_done(made: Made) -> None:
    made.quick = {"fast": Way(500.0)}
    told: list[str] = []
    find(
        PROBLEM, CPU, Policy(), mode=Mode.FULL, store=Store.open(None), budget_us=5e6,
        progress=lambda doing, done, of: told.append(doing),
    )  # fmt: skip
    assert list(dict.fromkeys(told)) == ["first looks", "heat", "check", "final"]


def test_what_wraps_nothing_is_searched_only_once(made: Made) -> None:
    made.quick = {"fast": Way(500.0)}
    store = Store.open(None)
    search(store=store)
    before = len(made.built)
    search(store=store)
    assert len(made.built) == before


def test_other_configurations_of_the_fastest_algorithms_are_tried(made: Made) -> None:
    made.quick = {name: Way(us) for name, us in (("a", 500.0), ("b", 520.0), ("c", 540.0), ("d", 560.0))}
    made.near = {name: [Way(900.0), Way(made.quick[name].time_us - 100)] for name in made.quick}
    store = Store.open(None)
    assert chosen(search(store=store)) == "quick/a[n=1]"
    tried = {id_ for id_ in made.built if "[" in id_}
    assert tried == {f"quick/{name}[n={n}]" for name in "abc" for n in (0, 1)}
    built = len(made.built)
    again = search(store=store)
    assert chosen(again) == "quick/a[n=1]"
    assert len(made.built) == built
    assert set(reasons(again)) == {OWN, "quick/a", "quick/b", "quick/c", "quick/d", *tried}


def test_turning_knobs_leaves_time_for_other_algorithms_and_for_the_rest(made: Made) -> None:
    made.quick = {name: Way(500.0 + i) for i, name in enumerate("abc")}
    made.near = {name: [Way(400.0, build_us=100_000.0) for _ in range(100)] for name in "abc"}
    found = search()
    assert chosen(found) is not None
    tried = Counter(id_.partition("[")[0] for id_ in set(made.built) if "[" in id_)
    assert set(tried) == {"quick/a", "quick/b", "quick/c"}
    assert all(8 <= times <= 11 for times in tried.values())


def test_what_is_wrong_makes_nobody_slow(made: Made) -> None:
    """What takes five times as long as a wrong one may beat PyTorch's own call, and is checked as others are."""
    made.quick = {"wrong": Way(50.0, wrong=True), "right": Way(700.0)}
    found = search()
    assert chosen(found) == "quick/right"
    assert is_whole(measured(found, "quick/right"))


def test_no_knobs_are_turned_of_what_is_wrong(made: Made) -> None:
    made.quick = {"wrong": Way(300.0, wrong=True), "right": Way(500.0)}
    made.near = {"wrong": [Way(290.0, wrong=True) for _ in range(9)], "right": [Way(490.0 - i) for i in range(9)]}
    found = search()
    assert chosen(found) == "quick/right[n=8]"
    tried = Counter(id_.partition("[")[0] for id_ in set(made.built) if "[" in id_)
    assert tried == {"quick/wrong": 1, "quick/right": 9}
    passed = {id_: reason for id_, reason in reasons(found).items() if id_.startswith("quick/wrong[")}
    assert passed.keys() == {"quick/wrong[n=0]", "quick/wrong[n=1]"}
    assert passed["quick/wrong[n=1]"] == "was not tried: quick/wrong is wrong"
    assert "relative L2 error on normal data is" in reasons(found)["quick/wrong"]


def test_a_wrong_configuration_is_not_chosen(made: Made) -> None:
    made.quick = {"a": Way(500.0)}
    made.near = {"a": [Way(100.0, wrong=True), Way(450.0)]}
    assert chosen(search()) == "quick/a[n=1]"


class Broken:
    """Stopwatches some of whose heats, the second if no others are named, go wrong or tell less than they would."""

    def __init__(self, patch: pytest.MonkeyPatch, change: Callable[[Finding], Finding], broken: Container[int]) -> None:
        self.heats: list[list[str]] = []
        own = Stopwatch.heat

        def heat(stopwatch: Stopwatch, trials: Iterable[Trial], budget_us: float) -> dict[Candidate, Finding]:
            trials = list(trials)
            self.heats.append([trial.candidate.id for trial in trials])
            found = own(stopwatch, trials, budget_us)
            return {c: change(f) for c, f in found.items()} if len(self.heats) in broken else found

        patch.setattr(Stopwatch, "heat", heat)


def broken(finding: Finding) -> Finding:
    return replace(finding, measurement=None, failure="failed: boom") if "fast" in finding.candidate.id else finding


def unsure(finding: Finding) -> Finding:
    assert finding.measurement is not None
    time_us = finding.measurement.device_us.value
    wide = Interval(time_us, 0.85 * time_us, 1.15 * time_us)
    return replace(finding, measurement=replace(finding.measurement, device_us=wide))


def test_what_a_final_left_open_goes_into_overtime(made: Made, monkeypatch: pytest.MonkeyPatch) -> None:
    made.quick = {"near": Way(900.0), "nearer": Way(850.0), "nearest": Way(800.0), "slower": Way(1300.0)}
    heats = Broken(monkeypatch, unsure, range(1, 3))
    assert chosen(search()) == "quick/nearest"
    assert heats.heats[2:] == [[OWN, "quick/nearest", "quick/nearer"]]


def test_overtime_has_an_end(made: Made, monkeypatch: pytest.MonkeyPatch) -> None:
    made.quick = {"near": Way(900.0), "slower": Way(1300.0)}
    heats = Broken(monkeypatch, unsure, range(1, 100))
    found = search()
    assert chosen(found) == OWN
    assert reasons(found)[OWN] == "the winner, AMBIGUOUS: quick/near may be better by more than a tie, but not surely"
    assert heats.heats[2:] == [[OWN, "quick/near"]] * 2


@pytest.mark.parametrize("time_us", [500.0, 1300.0])
def test_what_is_decided_has_no_overtime(made: Made, monkeypatch: pytest.MonkeyPatch, time_us: float) -> None:
    made.quick = {"other": Way(time_us)}
    heats = Broken(monkeypatch, unsure, ())
    search()
    assert len(heats.heats) == 2


@pytest.mark.parametrize("objective", ["time", "workspace"])
def test_who_fails_in_the_final_does_not_win(made: Made, monkeypatch: pytest.MonkeyPatch, objective: str) -> None:
    made.quick = {"fast": Way(500.0), "other": Way(700.0)}
    Broken(monkeypatch, broken, (2,))
    found = search(objective=objective)
    assert chosen(found) in (OWN, "quick/other")
    assert reasons(found)["quick/fast"] == "failed: boom"


def test_where_time_is_short_the_fastest_are_timed_side_by_side_and_the_others_by_their_looks(made: Made) -> None:
    made.quick = {f"way-{i}": Way(5000.0 + 500 * i) for i in range(12)} | {"wrong": Way(4000.0, wrong=True)}
    made.own_us = 9000.0
    found = search(budget_us=2e6)
    few = {
        v.finding.candidate.id for v in found.verdicts if v.finding.measurement and v.finding.measurement.samples < 6
    }
    assert chosen(found) == "quick/way-0"
    assert few
    assert "quick/way-0" not in few
    assert OWN not in few


def test_what_policy_forbids_makes_nobody_slow(made: Made) -> None:
    """As PyTorch's own call with TF32 does not where that is not allowed: what beats fp32 has to be timed well."""
    made.own_tf32_us, made.quick = 100.0, {"winner": Way(700.0)}
    found = search()
    assert chosen(found) == "quick/winner"
    assert is_whole(measured(found, "quick/winner"))
    assert measured(found, "torch/default[tf32=on]").device_us.value == pytest.approx(100.0)
    assert "is PyTorch with its TF32 flag on" in reasons(found)["torch/default[tf32=on]"]
