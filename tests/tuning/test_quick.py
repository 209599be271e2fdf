"""A quick search keeps its budget, looks at what is promising first, and never chooses what is wrong.

Time passes only while something made is built or runs, so what is found out is the same each time.
"""

from __future__ import annotations

import gc
from itertools import count
from typing import Any

import pytest

from convwright.core.candidate import Candidate
from convwright.core.device import DeviceFacts
from convwright.core.policy import Policy
from convwright.core.problem import ConvProblem
from convwright.settings import Mode
from convwright.store.store import Store
from convwright.tuning import listing
from convwright.tuning.find import Findings, find
from tuning.made import CPU, PROBLEM, chosen, reasons
from tuning.made_backend import Made, Way
from tuning.vague import be_vague

BUDGET_US = 200_000.0
OWN = "torch/default"


def search(store: Store | None = None, **changed: Any) -> Findings:
    asked: dict[str, Any] = {"mode": Mode.QUICK, "store": store or Store.open(None), "budget_us": BUDGET_US}
    return find(PROBLEM, CPU, Policy(), **(asked | changed))


def test_the_fastest_wins_and_is_known_precisely(made: Made) -> None:
    made.quick = {"slow": Way(2000.0), "fast": Way(500.0), "same": Way(1000.0)}
    found = search()
    assert chosen(found) == "quick/fast"
    assert reasons(found)["quick/fast"] == "the winner: 2.00x as fast as PyTorch's own call"
    assert found.choice is not None
    assert found.choice.measurement is not None
    assert found.choice.measurement.device_us.relative_halfwidth < 0.005
    kinds = "normal, infinity, channel-scaled, large, positive, nan"
    assert dict(found.choice.measurement.conditions)["checked"] == f"some elements of the output, on {kinds} data"


def test_a_time_has_its_date_and_the_clock_that_was_read_behind_it(made: Made, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is read before anything ran is the clock of a GPU that is idle."""
    monkeypatch.setattr("convwright.tuning.trials.side_by_side.today", lambda: (("date", "2026-11-20"),))
    monkeypatch.setattr("convwright.tuning.trials.side_by_side.conditions", lambda device: (("sm_clock_mhz", "345"),))
    monkeypatch.setattr("convwright.tuning.trials.side_by_side.state", lambda device: (("sm_clock_mhz", "1980"),))
    made.quick = {"fast": Way(500.0)}
    measured = search().choice.measurement  # type: ignore[union-attr]
    assert measured is not None
    known = dict(measured.conditions)
    assert (known["date"], known["sm_clock_mhz"], known["cache"]) == ("2026-11-20", "1980", "hot")


@pytest.mark.parametrize("time_us", [50.0, 500.0, 3000.0, 10_000.0])
@pytest.mark.parametrize("count", [1, 8, 200])
def test_the_budget_is_kept_whatever_there_is_to_look_at(made: Made, time_us: float, count: int) -> None:
    made.own_us = time_us
    made.quick = {f"way-{i}": Way(time_us * (1 + i / 7), build_us=3000.0) for i in range(count)}
    search()
    assert made.time() <= 0.93 * BUDGET_US, "what was found has to be written down as well"


@pytest.mark.parametrize("slow_us", [150_000.0, 2_000_000.0])
def test_one_candidate_may_overshoot_and_the_best_so_far_still_wins(made: Made, slow_us: float) -> None:
    made.quick = {"fast": Way(500.0), "slow": Way(slow_us), "late": Way(400.0)}
    found = search()
    assert chosen(found) == "quick/fast"
    assert made.time() <= BUDGET_US + slow_us
    assert reasons(found)["quick/late"] == "was not tried: the budget was spent"
    assert made.built.count("quick/late") == 0


@pytest.mark.parametrize("build_us", [90_000.0, 120_000.0, 150_000.0])
@pytest.mark.parametrize("own_us", [6000.0, 8000.0, 10_000.0])
def test_after_one_that_overshoots_long_calls_have_the_time_that_they_take(
    made: Made, own_us: float, build_us: float
) -> None:
    made.own_us = own_us
    made.quick = {"fast": Way(0.6 * own_us), "slow": Way(own_us, build_us=build_us)}
    assert chosen(search()) == "quick/fast"
    assert made.time() <= BUDGET_US + build_us


@pytest.mark.parametrize("own_us", [4000.0, 10_000.0])
def test_what_takes_long_only_at_its_first_run_may_win(made: Made, own_us: float) -> None:
    made.own_us, made.quick = own_us, {"fast": Way(0.6 * own_us)}
    runs = count()
    made.disturb = lambda: 15_000.0 if made.built[-1] == "quick/fast" and next(runs) == 0 else 0.0
    assert chosen(search()) == "quick/fast"


def test_what_a_library_links_is_looked_at_where_that_is_a_small_part_of_the_budget(made: Made) -> None:
    made.quick = {"linked": Way(100.0, links_us=2e5), "fast": Way(500.0)}
    found = search()
    assert chosen(found) == "quick/fast"
    assert reasons(found)["quick/linked"] == "was not tried: its first run may take a library 200 ms"
    assert chosen(search(budget_us=2.1e6)) == "quick/linked"


def test_where_pytorchs_own_call_is_forbidden_others_need_not_be_better(
    made: Made, monkeypatch: pytest.MonkeyPatch
) -> None:
    def objection(candidate: Candidate, policy: Policy) -> str | None:
        return "is forbidden" if candidate.id == OWN else objection_to(candidate, policy)

    objection_to = listing.objection
    monkeypatch.setattr("convwright.tuning.listing.objection", objection)
    made.quick = {"slow": Way(2500.0), "slower": Way(3000.0)}
    timed = {v.finding.candidate.id: v.finding.measurement for v in search().verdicts}
    assert timed["quick/slow"] is not None
    assert timed["quick/slow"].errors


@pytest.mark.parametrize("own_us", [20_000.0, 90_000.0, 1_000_000.0])
def test_where_pytorchs_own_call_takes_too_long_nothing_else_is_tried_and_that_is_said(
    made: Made, own_us: float
) -> None:
    made.own_us, made.quick = own_us, {"fast": Way(10.0)}
    store = Store.open(None)
    found = search(store)
    assert chosen(found) in (None, OWN)
    assert reasons(found)["quick/fast"] == (
        f"was not tried: PyTorch's own call takes {own_us / 1e3:.3g} ms, too long to compare it with anything "
        "within 200 ms"
    )
    assert "quick/fast" not in made.built
    assert made.time() <= max(BUDGET_US, 2 * own_us)
    before = made.time()
    assert reasons(search(store))["quick/fast"] != reasons(found)["quick/fast"]
    assert made.time() == before, "it is not tried again with no more time"
    assert chosen(search(store, budget_us=60 * own_us)) == "quick/fast", "more time is another search"
    before = made.time()
    assert chosen(search(store)) == "quick/fast"
    assert made.time() == before, "what was searched is not searched again"


def test_what_no_processor_computes_within_the_budget_is_not_run_at_all(made: Made) -> None:
    made.quick = {"fast": Way(10.0)}
    asked = ConvProblem.parse("mb32ic64ih112oc128kh5ph2")
    assert asked.flops == 160_912_375_808
    found = find(asked, CPU, Policy(), mode=Mode.QUICK, store=Store.open(None), budget_us=BUDGET_US)
    assert found.choice is None
    assert made.built == []
    assert set(reasons(found).values()) == {
        "was not tried: PyTorch's own call takes at least 96.7 ms, too long to compare it with anything within 200 ms"
    }


@pytest.mark.parametrize(("own_us", "least_us", "most_us"), [(1e3, 0.0, 2e5), (17e3, 1e6, 2.55e6), (5e4, 1e6, 3e6)])
def test_long_calls_on_a_cpu_have_more_time_where_nobody_gives_a_budget(
    made: Made, own_us: float, least_us: float, most_us: float
) -> None:
    made.own_us, made.quick = own_us, {f"slow-{i}": Way(1.2 * own_us) for i in range(7)} | {"fast": Way(0.5 * own_us)}
    found = search(budget_us=None)
    assert chosen(found) == "quick/fast"
    assert found.choice is not None
    assert found.choice.measurement is not None
    assert found.choice.measurement.errors
    assert least_us <= made.time() <= most_us


def test_a_call_too_long_for_all_the_time_that_there_is_runs_alone(made: Made) -> None:
    made.own_us, made.quick = 4e5, {"fast": Way(10.0)}
    assert reasons(search(budget_us=None))["quick/fast"] == (
        "was not tried: PyTorch's own call takes 400 ms, too long to compare it with anything within 3,000 ms"
    )
    assert made.time() <= 3e6
    store = Store.open(None)
    search(store, budget_us=None)
    said = reasons(search(store, budget_us=None))["quick/fast"]
    assert said == "was not measured when this was searched: give a larger budget"


def test_what_pytorch_does_with_another_flag_is_not_looked_at(made: Made) -> None:
    made.own_tf32_us, made.quick = 100.0, {"fast": Way(500.0)}
    found = search()
    assert chosen(found) == "quick/fast"
    assert "torch/default[tf32=on]" not in made.built


def test_what_takes_twice_as_long_as_pytorchs_own_call_is_not_timed_beside_it(made: Made) -> None:
    made.quick = {"slow": Way(2500.0), "near": Way(1900.0)}
    found = search()
    timed = {verdict.finding.candidate.id for verdict in found.verdicts if verdict.finding.measurement is not None}
    assert timed == {OWN, "quick/near"}
    assert reasons(found)["quick/slow"] == "about 2.5x the best at a first look"


@pytest.mark.parametrize("own_us", [1000.0, 2000.0])
@pytest.mark.parametrize("slow_us", [40_000.0, 60_000.0, 100_000.0, 150_000.0])
def test_one_cold_look_that_was_slow_does_not_keep_the_others_from_being_timed(
    made: Made, own_us: float, slow_us: float
) -> None:
    made.own_us, made.quick = own_us, {"slow": Way(slow_us)}
    assert chosen(search()) == OWN
    made.quick = {"slow": Way(slow_us), **{f"slower-{i}": Way(2.5 * own_us) for i in range(4)}}
    assert chosen(search()) == OWN


def test_listing_takes_nothing_of_the_budget(made: Made, monkeypatch: pytest.MonkeyPatch) -> None:
    def direct(*asked: Any) -> Any:
        made.time.now_us += 250_000.0
        return listed(*asked)

    listed = listing.direct
    monkeypatch.setattr("convwright.tuning.listing.direct", direct)
    made.quick = {"fast": Way(500.0)}
    assert chosen(search()) == "quick/fast"


def test_no_garbage_is_looked_for_meanwhile(made: Made) -> None:
    collecting: list[bool] = []
    made.disturb = lambda: float(collecting.append(gc.isenabled()) or 0.0)
    made.quick = {"fast": Way(500.0)}
    search()
    assert collecting
    assert not any(collecting)
    assert gc.isenabled()


def test_what_pytorchs_own_call_takes_only_once_is_not_its_time(made: Made) -> None:
    made.own_us, made.quick = 500.0, {"fast": Way(100.0)}
    first = iter([48_000.0])
    made.disturb = lambda: next(first, 0.0)
    assert chosen(search()) == "quick/fast"


def test_what_cannot_win_for_all_that_it_moves_is_not_loaded(made: Made, monkeypatch: pytest.MonkeyPatch) -> None:
    def moving_us(candidate: Candidate, device: DeviceFacts) -> float:
        return 2000.0 if candidate.id == "quick/huge" else 1000.0

    monkeypatch.setattr("convwright.prediction.physics.moving_us", moving_us)
    made.quick = {"fast": Way(500.0), "huge": Way(100.0, build_us=140_000.0), "late": Way(400.0)}
    found = search()
    assert chosen(found) == "quick/late"
    assert "quick/huge" not in made.built
    assert reasons(found)["quick/huge"] == "was not tried: it needs 2e+03 µs to move its data, 400 µs were seen"


def test_a_wrong_candidate_is_reported_as_wrong_and_the_next_right_one_wins(made: Made) -> None:
    made.quick = {"wrong": Way(100.0, wrong=True), "right": Way(500.0)}
    found = search()
    assert chosen(found) == "quick/right"
    assert "relative L2 error on normal data is" in reasons(found)["quick/wrong"]
    assert made.time() <= BUDGET_US


def test_what_is_wrong_leaves_pytorchs_own_call_fit_to_be_compared_with(made: Made) -> None:
    made.quick = {"wrong": Way(100.0, wrong=True)}
    store = Store.open(None)
    search(store)
    own = store.findings(PROBLEM.key, CPU.key)[OWN].measurement
    assert own is not None
    assert {error.kind for error in own.errors} >= {"normal", "infinity"}
    made.quick["right"] = Way(500.0)
    assert chosen(search(store)) == "quick/right"


def test_all_wrong_means_pytorchs_own_call(made: Made) -> None:
    made.quick = {name: Way(100.0, wrong=True) for name in "abcd"}
    found = search()
    assert chosen(found) == OWN
    assert all("wrong" not in row or "relative L2" in why for row, why in reasons(found).items())


def test_fewer_kinds_of_data_are_looked_at_where_calls_are_long_and_that_is_said(made: Made) -> None:
    made.own_us, made.quick = 9000.0, {"fast": Way(4000.0)}
    found = search()
    assert chosen(found) == "quick/fast"
    assert found.choice is not None
    assert found.choice.measurement is not None
    kinds = [error.kind for error in found.choice.measurement.errors]
    assert kinds[:2] == ["normal", "infinity"]
    assert len(kinds) < 6
    said = f"some elements of the output, on {', '.join(kinds)} data"
    assert dict(found.choice.measurement.conditions)["checked"] == said
    assert made.time() <= BUDGET_US


@pytest.mark.parametrize(("share", "is_begun"), [(0.1, True), (0.45, False)])
def test_a_final_that_would_not_end_within_the_budget_is_not_begun(
    made: Made, monkeypatch: pytest.MonkeyPatch, share: float, is_begun: bool
) -> None:
    monkeypatch.setattr("convwright.tuning.trials.measure.heat_us", lambda *_: share * BUDGET_US)
    made.quick, told = {"fast": Way(500.0)}, []
    found = search(progress=lambda doing, done, of: told.append(doing))
    assert chosen(found) == "quick/fast"
    assert "heat" in told
    assert ("final" in told) is is_begun


def test_what_took_a_process_with_it_is_not_run_again(made: Made) -> None:
    made.quick = {"deadly": Way(100.0), "fine": Way(500.0)}
    store = Store.open(None)
    place = PROBLEM.key, CPU.key, "quick/deadly"
    crashed = store.trying(*place, "1")
    crashed.__enter__()  # and never left, as by a process that died
    _as_of_another_process(store)
    assert set(store.quarantined(*place[:2])) == {"quick/deadly"}
    found = search(store)
    assert chosen(found) == "quick/fine"
    assert "quick/deadly" not in made.built
    assert reasons(found)["quick/deadly"].startswith("is in quarantine: ")


def _as_of_another_process(store: Store) -> None:
    """A process id that nobody has: what is being tried there is tried no more."""
    store._database.execute("UPDATE trying SET pid = 999999999")


def test_a_first_run_is_announced_and_taken_back(made: Made) -> None:
    made.quick = {"fine": Way(500.0)}
    store, tried = Store.open(None), list[str]()
    announce = store.trying

    def trying(problem: str, device: str, candidate: str, print_: str) -> Any:
        tried.append(candidate)
        return announce(problem, device, candidate, print_)

    store.trying = trying  # type: ignore[method-assign]
    search(store)
    assert tried == ["quick/fine"], "PyTorch's own call needs no announcement"
    assert store.quarantine() == {}


def test_one_that_may_be_better_does_not_stand_in_the_way_of_one_that_is(
    made: Made, monkeypatch: pytest.MonkeyPatch
) -> None:
    be_vague(monkeypatch)
    made.quick = {"vague": Way(600.0), "sure": Way(650.0)}
    assert chosen(search()) == "quick/sure"
    made.quick = {"vague": Way(600.0), "same": Way(1000.0)}
    assert chosen(search()) == OWN
