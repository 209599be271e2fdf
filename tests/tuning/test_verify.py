"""A choice from the store is taken, or timed again first and searched anew where it no longer holds."""

from __future__ import annotations

from typing import Any

import pytest

import convwright as cw
from convwright.core.policy import Policy
from convwright.errors import BadInput
from convwright.settings import Mode, Trust, settings
from convwright.store.store import Store
from convwright.tuning.find import Findings, find
from tuning.made import CPU, PROBLEM
from tuning.made_backend import Made, Way


@pytest.fixture
def store(made: Made) -> Store:
    """Holds that ``quick/first`` takes 500 µs, ``quick/second`` 600 and PyTorch's own call 1000."""
    made.quick = {"first": Way(500.0), "second": Way(600.0)}
    opened = Store.open(None)
    assert chosen(search(opened)) == "quick/first"
    made.built.clear()
    made.time.now_us = 0.0
    return opened


def search(store: Store, **asked: Any) -> Findings:
    return find(PROBLEM, CPU, Policy(), mode=Mode.FULL, store=store, budget_us=2e6, **asked)


def chosen(found: Findings) -> str:
    assert found.choice is not None
    return found.choice.candidate.id


def test_trust_runs_nothing(made: Made, store: Store) -> None:
    made.quick["first"] = Way(5000.0)
    assert chosen(search(store)) == "quick/first"
    assert made.built == []


def test_what_still_holds_is_kept_after_one_short_timing(made: Made, store: Store) -> None:
    made.quick["first"] = Way(530.0)  # 6 % off
    found = search(store, trust=Trust.VERIFY)
    assert chosen(found) == "quick/first"
    assert found.choice is not None
    assert found.choice.remembered
    assert sorted(made.built) == ["quick/first", "torch/default"]
    assert made.time() <= 250_000.0


def test_what_no_longer_holds_is_searched_anew(made: Made, store: Store) -> None:
    made.quick["first"] = Way(700.0)
    found = search(store, trust=Trust.VERIFY)
    assert chosen(found) == "quick/second"
    assert found.choice is not None
    assert not found.choice.remembered
    made.built.clear()
    assert chosen(search(store)) == "quick/second", "the new findings have taken the place of the old"
    assert made.built == []


def test_a_machine_that_is_slower_as_a_whole_changes_no_choice(made: Made, store: Store) -> None:
    made.own_us, made.quick = 2000.0, {"first": Way(1000.0), "second": Way(1200.0)}
    found = search(store, trust=Trust.VERIFY)
    assert found.choice is not None
    assert found.choice.remembered


def test_a_winner_that_fails_is_searched_anew(made: Made, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: Any) -> None:
        raise RuntimeError("no such kernel")

    monkeypatch.setattr("tuning.made_backend.MadeQuick.build", broken)
    found = search(store, trust=Trust.VERIFY)
    assert chosen(found) == "torch/default"
    assert {v.reason for v in found.verdicts if not v.won} == {"failed: no such kernel"}


def test_the_environment_says_it_too(made: Made, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CONVWRIGHT_TRUST", "verify")
    settings.cache_clear()
    assert settings().trust is Trust.VERIFY
    search(store)
    assert "quick/first" in made.built
    monkeypatch.setenv("CONVWRIGHT_TRUST", "blindly")
    settings.cache_clear()
    with pytest.raises(BadInput, match="CONVWRIGHT_TRUST must be one of trust, verify, got 'blindly'"):
        settings()


def test_the_public_face_takes_words(made: Made, store: Store) -> None:
    cw.find(PROBLEM, device=CPU, mode="full", store=store, trust="verify")
    assert "quick/first" in made.built
    with pytest.raises(BadInput, match="trust must be one of trust, verify, got 'maybe'"):
        cw.find(PROBLEM, device=CPU, mode="full", store=store, trust="maybe")
