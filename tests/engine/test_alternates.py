"""Candidates for a network are checked once, and the store remembers their errors."""

from __future__ import annotations

from dataclasses import replace

import pytest

from convwright.core.policy import Policy
from convwright.core.problem import ConvProblem
from convwright.engine.planning import alternates as planning
from convwright.engine.planning.alternates import alternates
from convwright.measuring.hardware.machine import device_facts
from convwright.settings import Mode
from convwright.store.store import Store
from convwright.tuning.choose import Verdict
from convwright.tuning.find import Findings, find
from convwright.tuning.trials.checks import Checks

PROBLEM = ConvProblem.parse("mb2ic16ih28oc16kh3ph1")


def searched(store: Store) -> Findings:
    return find(PROBLEM, device_facts("cpu"), Policy(), mode=Mode.QUICK, store=store, budget_us=1e6)


def unchecked(verdict: Verdict) -> Verdict:
    """Whatever did not win was timed, and its error was not looked at."""
    measured = verdict.finding.measurement
    if measured is None or verdict.won:
        return verdict
    return replace(verdict, finding=replace(verdict.finding, measurement=replace(measured, errors=(), doubt=None)))


def test_errors_that_planning_measures_are_known_to_the_next_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(planning, "_CLOSE", 1e3)
    with Store.open(None) as store:
        found = searched(store)
        found = replace(found, verdicts=tuple(map(unchecked, found.verdicts)))
        first = alternates(found, store)
        assert len(first) > 1
        known = store.findings(PROBLEM.key, found.device.key)
        for candidate, _ in first:
            assert (measured := known[candidate.id].measurement) is not None
            assert measured.errors
        again = searched(store)
        monkeypatch.setattr(Checks, "check", None)
        assert {candidate.id for candidate, _ in first} <= {candidate.id for candidate, _ in alternates(again, store)}


def test_what_is_wrong_is_no_alternate(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(planning, "_CLOSE", 1e3)
    monkeypatch.setattr(Checks, "_is_wrong", lambda self, candidate, errors: True)
    with Store.open(None) as store:
        found = searched(store)
        found = replace(found, verdicts=tuple(map(unchecked, found.verdicts)))
        assert len(alternates(found, store)) == 1
