"""`find` from Python: what says how to measure is an error where nothing is measured."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

import convwright as cw
from convwright.core.policy import Policy
from convwright.measuring.hardware.machine import device_facts
from convwright.tuning.keeping.store import Store
from convwright.tuning.listing import fingerprint
from tuning.made import measurement

TEXT = "ic4ih8oc4kh3"
NOWHERE = pytest.mark.parametrize(
    ("asked", "why"),
    [
        ({"device": "h200"}, "NVIDIA H200 is elsewhere: nothing is measured"),
        ({"device": "cpu", "mode": "heuristic"}, "mode heuristic measures nothing"),
    ],
)


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
    with pytest.raises(cw.BadInput, match=r"^`progress` must be a function of \(what, done, total\) or None, got 3$"):
        cw.find(TEXT, device="cpu", mode=mode, progress=3)  # type: ignore[arg-type]
