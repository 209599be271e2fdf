"""What other work on the machine disturbs is not believed: it is looked at again, said, not kept, and found out later.

Time passes only while something made runs, and other work adds to it what a test says.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from math import inf
from typing import Any

import pytest

from convwright.core.finding import Finding, Interval
from convwright.core.policy import Objective, Policy
from convwright.measuring.timing import Timing
from convwright.settings import Mode, Trust
from convwright.store.store import Store
from convwright.tuning.choose import choose
from convwright.tuning.find import Findings, find
from convwright.tuning.trials.doubt import doubt, least
from tuning.made import CPU, PROBLEM, chosen, finding, reasons
from tuning.made_backend import Made, Way

OWN = "torch/default"
STOLEN_US = 24_000.0


def search(store: Store | None = None, mode: Mode = Mode.QUICK, **asked: Any) -> Findings:
    budget_us = 200_000.0 if mode is Mode.QUICK else 5e6
    return find(PROBLEM, CPU, Policy(), mode=mode, store=store or Store.open(None), budget_us=budget_us, **asked)


def row(found: Findings, id_: str) -> Finding:
    return next(v.finding for v in found.verdicts if v.finding.candidate.id == id_)


def kept(store: Store) -> set[str]:
    return set(store.findings(PROBLEM.key, CPU.key))


def from_call(first: int, last: float = inf) -> Callable[[], float]:
    """Other work that begins and ends at calls of these numbers."""
    calls = 0

    def disturb() -> float:
        nonlocal calls
        calls += 1
        return STOLEN_US if first <= calls < last else 0.0

    return disturb


@pytest.fixture
def short(made: Made) -> Made:
    """PyTorch's own call takes 35 µs, and one other 20."""
    made.own_us, made.quick = 35.0, {"fast": Way(20.0), "slow": Way(70.0)}
    return made


def test_a_disturbed_look_is_taken_again_and_decides_nothing(short: Made) -> None:
    short.disturb = from_call(1, 4)
    store = Store.open(None)
    found = search(store)
    assert chosen(found) == "quick/fast"
    assert reasons(found)["quick/fast"] == "the winner: 1.75x as fast as PyTorch's own call"
    assert found.unstable is None
    assert short.time() <= 200_000.0
    before = short.time()
    assert chosen(search(store)) == "quick/fast"
    assert short.time() == before, "what was searched is not searched again"


def test_stretches_of_other_work_cost_time_and_no_truth(short: Made) -> None:
    calls = iter(range(1_000_000))
    short.disturb = lambda: STOLEN_US if next(calls) % 400 == 399 else 0.0
    store = Store.open(None)
    found = search(store)
    assert chosen(found) == "quick/fast"
    for id_, time_us in ((OWN, 35.0), ("quick/fast", 20.0)):
        measured = row(found, id_).measurement
        assert measured is not None
        assert measured.device_us.value == pytest.approx(time_us, rel=0.01)
        assert measured.doubt is None
    assert {OWN, "quick/fast"} <= kept(store)


def test_where_every_look_is_disturbed_that_is_said_and_the_next_search_measures(short: Made) -> None:
    short.disturb = lambda: 60_000.0
    store = Store.open(None)
    found = search(store)
    assert chosen(found) is None
    assert found.unstable is not None
    assert found.unstable.startswith("unstable: a call took 60 ms at a first look, the shortest of 2, ")
    assert "other work had the cores for " in found.unstable
    assert found.unstable.endswith(": stop other work on the machine, or give a larger budget")
    assert reasons(found)[OWN] == found.unstable
    assert reasons(found)["quick/fast"] == ("was not tried: PyTorch's own call took 60 ms, and other work disturbed it")
    assert kept(store) == set()
    assert short.time() <= 200_000.0
    short.disturb = lambda: 0.0
    again = search(store)
    assert chosen(again) == "quick/fast"
    assert not row(again, OWN).remembered


def test_a_time_that_was_disturbed_is_in_doubt_the_shortest_call_is_shown_and_nothing_kept(short: Made) -> None:
    short.disturb = from_call(15)  # after the looks
    store = Store.open(None)
    found = search(store)
    own = row(found, OWN).measurement
    assert own is not None
    assert own.unstable
    assert own.device_us.value == 35.0
    assert own.device_us.high > STOLEN_US
    assert chosen(found) == OWN
    assert reasons(found)[OWN] == "the winner, AMBIGUOUS: its time is unstable, so nothing can be said to be faster"
    assert found.unstable == own.doubt
    assert kept(store) == set()
    short.disturb = lambda: 0.0
    assert chosen(search(store)) == "quick/fast"


def test_a_candidate_whose_looks_were_disturbed_gets_another_chance(short: Made) -> None:
    short.quick = {"fast": Way(20.0)}
    short.disturb = from_call(5)  # PyTorch's own call is looked at four times before
    store = Store.open(None)
    found = search(store)
    assert found.unstable is not None
    short.disturb = lambda: 0.0
    assert chosen(search(store)) == "quick/fast"


def test_a_long_call_that_nothing_disturbs_is_only_long(made: Made) -> None:
    made.own_us, made.quick = 50_000.0, {"fast": Way(10.0)}
    found = search()
    assert found.unstable is None
    assert "too long to compare it with anything" in reasons(found)["quick/fast"]


@pytest.mark.parametrize("mode", [Mode.QUICK, Mode.FULL])
def test_what_was_known_is_not_lost_to_a_disturbed_search(short: Made, mode: Mode) -> None:
    store = Store.open(None)
    search(store)
    before = {id_: stored.measurement for id_, stored in store.findings(PROBLEM.key, CPU.key).items()}
    short.quick["new"] = Way(10.0)
    short.disturb = from_call(1)
    found = search(store, mode)
    assert {id_: store.findings(PROBLEM.key, CPU.key)[id_].measurement for id_ in before} == before
    assert chosen(found) == "quick/fast"
    short.disturb = lambda: 0.0
    assert chosen(search(store, mode)) == "quick/new"


def test_a_full_search_gives_up_nothing_beside_other_work(short: Made) -> None:
    calls = iter(range(10_000_000))
    short.disturb = lambda: STOLEN_US if next(calls) % 500 >= 490 else 0.0
    found = search(mode=Mode.FULL)
    assert chosen(found) == "quick/fast"
    measured = row(found, OWN).measurement
    assert measured is not None
    assert measured.device_us.value == pytest.approx(35.0, rel=0.01)


def test_a_winner_whose_second_time_is_disturbed_is_not_kept_as_won(short: Made) -> None:
    short.quick = {"fast": Way(20.0)}
    store, disturbed = Store.open(None), from_call(1)
    short.disturb = lambda: disturbed() if short.built.count("quick/fast") == 2 else 0.0
    found = search(store, Mode.FULL)
    assert chosen(found) == OWN
    assert reasons(found)["quick/fast"].startswith("unstable: ")
    assert kept(store) == set()
    short.disturb = lambda: 0.0
    assert chosen(search(store, Mode.FULL)) == "quick/fast"


def test_nothing_is_said_against_the_store_beside_other_work(short: Made) -> None:
    store = Store.open(None)
    assert chosen(search(store, Mode.FULL)) == "quick/fast"
    short.disturb = from_call(1)
    found = search(store, Mode.FULL, trust=Trust.VERIFY)
    assert chosen(found) == "quick/fast"
    assert found.choice is not None
    assert found.choice.remembered


def timing(value: float, halfwidth: float, rounds: int, *, disturbed: bool = False) -> Timing:
    call_us = Interval(value, value - halfwidth, value + halfwidth)
    return Timing(
        call_us, None, rounds, (value,) * rounds, None, 0, disturbed=disturbed, background=("others had the cores",)
    )


@pytest.mark.parametrize(
    ("timed", "look_us", "said"),
    [
        (timing(100.0, 24.0, 50), 90.0, None),
        (timing(100.0, 26.0, 50), 90.0, "its time is known to ±26% only, after 50 rounds"),
        (timing(100.0, 90.0, 5), 90.0, None),  # few rounds are wide however quiet it is
        (
            replace(timing(100.0, 90.0, 5), discarded=9),
            90.0,
            "its time is known to ±90% only, after 5 rounds and 9 that were disturbed",
        ),
        (timing(100.0, 1.0, 5), 49.0, "100 µs in the median, and 49 µs at a first look"),
        (timing(100.0, 1.0, 5), 0.0, None),
        (timing(100.0, 1.0, 2, disturbed=True), 100.0, "2 rounds were timed, and fewer than two undisturbed"),
        (timing(-1.0, 1.0, 2), 0.0, "its time drowned in noise in 2 rounds"),
    ],
)
def test_what_speaks_against_a_time(timed: Timing, look_us: float, said: str | None) -> None:
    cure = "stop other work on the machine, or give a larger budget"
    assert doubt(timed, look_us) == (said and f"unstable: {said}, others had the cores: {cure}")


def test_the_shortest_is_what_is_left() -> None:
    assert least(Interval(24_000.0, -5.0, 50_000.0), 35.0) == Interval(35.0, 0.0, 50_000.0)
    assert least(Interval(30.0, 20.0, 40.0), 35.0) == Interval(30.0, 20.0, 40.0)
    assert least(Interval(-1.0, -2.0, 1.0), 35.0) == Interval(35.0, 0.0, 35.0)


def unstable(known: Finding) -> Finding:
    assert known.measurement is not None
    return replace(known, measurement=replace(known.measurement, doubt="unstable: all rounds were disturbed"))


def test_beside_an_unstable_time_of_pytorchs_own_nothing_is_faster() -> None:
    own, other = finding(OWN, 24_000.0), finding("a/b", 50.0)
    assert choose([own, other], own, Policy())[0].finding is other
    shaken = unstable(own)
    assert choose([shaken, other], shaken, Policy())[0].finding is shaken
    least_workspace = Policy(objective=Objective.WORKSPACE)
    own, other = unstable(finding(OWN, 100.0, workspace_bytes=9)), unstable(finding("a/b", 100.0))
    assert choose([own, other], own, least_workspace)[0].finding is other, "which no other work changes"


def test_an_unstable_candidate_does_not_win() -> None:
    own, other = finding(OWN, 100.0), unstable(finding("a/b", 10.0))
    assert choose([own, other], own, Policy())[0].finding is own
