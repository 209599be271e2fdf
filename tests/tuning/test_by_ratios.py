"""On a busy machine candidates are compared by ratios of rounds in which both ran, if that is asked for.

Time passes only while something made runs, and other work adds to each call what a test says.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from convwright.core.finding import Finding, Interval, PairedRatio
from convwright.core.policy import Policy, Weights
from convwright.report.benchmarks.result import Outcome, outcome_of
from convwright.settings import Mode
from convwright.store.store import Store
from convwright.tuning.by_ratios import by_ratios
from convwright.tuning.choose import choose
from convwright.tuning.find import Findings, find
from tuning.made import CPU, PROBLEM, chosen, finding, reasons
from tuning.made_backend import Made, Way

OWN = "torch/default"
MODES = [Mode.QUICK, Mode.FULL]


def search(store: Store, mode: Mode, **asked: Any) -> Findings:
    return find(PROBLEM, CPU, Policy(), mode=mode, store=store, budget_us=200_000.0, **asked)


@pytest.fixture
def busy(made: Made) -> Made:
    """PyTorch's own call takes 35 µs and another 20. Other work takes 40 µs of each call, and for a while 400."""
    made.own_us, made.quick = 35.0, {"fast": Way(20.0), "slow": Way(70.0)}
    made.disturb = lambda: 400.0 if int(made.time() / 3000.0) % 3 == 0 else 40.0
    return made


@pytest.mark.parametrize("mode", MODES)
def test_on_a_busy_machine_ratios_decide_where_that_is_asked_for(busy: Made, mode: Mode) -> None:
    assert chosen(search(Store.open(None), mode)) != "quick/fast"
    store = Store.open(None)
    found = search(store, mode, tolerate_load=True)
    assert chosen(found) == "quick/fast"
    assert found.unstable is not None
    assert found.undecided is None
    assert found.paired is not None
    assert found.times_faster is not None
    assert found.times_faster.low > 1.02
    assert found.times_faster.low <= found.times_faster.value <= found.times_faster.high
    assert outcome_of(found) is Outcome.FASTER
    assert reasons(found)["quick/fast"].startswith("the winner: 1.")
    assert not store.findings(PROBLEM.key, CPU.key), "an unstable time is not kept"
    busy.disturb = lambda: 0.0
    again = search(store, mode)
    assert (chosen(again), again.unstable) == ("quick/fast", None)
    assert not again.choice.remembered  # type: ignore[union-attr]


@pytest.mark.parametrize("mode", MODES)
def test_what_is_not_faster_is_not_chosen_on_a_busy_machine_either(busy: Made, mode: Mode) -> None:
    busy.quick = {"same": Way(35.0), "slow": Way(70.0)}
    found = search(Store.open(None), mode, tolerate_load=True)
    assert chosen(found) == OWN
    assert outcome_of(found) in (Outcome.SAME, Outcome.AMBIGUOUS)


@pytest.mark.parametrize("mode", MODES)
def test_on_a_quiet_machine_nothing_is_different(made: Made, mode: Mode) -> None:
    made.own_us, made.quick = 35.0, {"fast": Way(20.0)}
    store = Store.open(None)
    found = search(store, mode, tolerate_load=True)
    assert (chosen(found), found.unstable) == ("quick/fast", None)
    assert store.findings(PROBLEM.key, CPU.key).keys() == {OWN, "quick/fast"}


def shaken(row: Finding, ratio: float | None, *, own: str = OWN, halfwidth: float = 0.01) -> Finding:
    assert row.measurement is not None
    known = None
    if ratio is not None:
        known = PairedRatio(own, Interval(ratio, ratio * (1 - halfwidth), ratio * (1 + halfwidth)), 9)
    return replace(row, measurement=replace(row.measurement, doubt="unstable: stop other work", paired=known))


def winner(own: Finding, *others: Finding) -> str | None:
    compared = by_ratios([own, *others], own, Policy())
    verdicts = choose(compared, compared[0], Policy())
    return next((each.finding.candidate.id for each in verdicts if each.won), None)


OWN_SHAKEN = shaken(finding(OWN, 100.0, halfwidth=0.9), None)


@pytest.mark.parametrize(
    ("other", "won"),
    [
        (shaken(finding("a/b", 500.0), 0.5), "a/b"),  # whatever its time
        (shaken(finding("a/b", 10.0), 1.5), OWN),
        (shaken(finding("a/b", 10.0), 0.5, halfwidth=0.99), OWN),  # not surely
        (shaken(finding("a/b", 10.0), None), OWN),  # did not run with it
        (shaken(finding("a/b", 10.0), 0.5, own="torch/other"), OWN),
        (finding("a/b", 10.0), OWN),  # a time of a quiet machine, which says nothing beside one of a busy machine
    ],
)
def test_a_ratio_decides_and_nothing_else(other: Finding, won: str) -> None:
    assert winner(OWN_SHAKEN, other) == won


def test_beside_a_stable_time_only_unstable_ones_are_replaced() -> None:
    own, stable = finding(OWN, 100.0), finding("a/stable", 60.0)
    assert by_ratios([own, stable], own, Policy()) == [own, stable]
    assert winner(own, stable, shaken(finding("a/b", 900.0), 0.5)) == "a/b"


def test_the_packing_of_a_weight_counts_where_weights_change() -> None:
    other = shaken(finding("a/b", 10.0, prepare_us=10.0), 0.5)
    assert other.measurement is not None
    assert other.measurement.paired is not None
    packing = replace(other.measurement.paired, packing_ratio=Interval(1.5, 1.4, 1.6))
    other = replace(other, measurement=replace(other.measurement, paired=packing))
    for weights, time_us in ((Weights.CHANGING, 150.0), (Weights.CONSTANT, 50.0)):
        policy = Policy(weights=weights)
        (row,) = by_ratios([other], OWN_SHAKEN, policy)
        assert row.measurement is not None
        assert row.measurement.call_us(weights_change=weights is Weights.CHANGING).value == pytest.approx(time_us)
