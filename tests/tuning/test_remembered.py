"""A new process takes its choices from the store, and asks no backend what there is."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from convwright.core.candidate import Candidate
from convwright.core.policy import Policy
from convwright.settings import Mode, settings
from convwright.store.store import Store
from convwright.tuning import listing
from convwright.tuning.find import find
from convwright.tuning.session import Session
from tuning import made_backend
from tuning.made import CPU, PROBLEM
from tuning.made_backend import Made, Way
from tuning.vague import be_vague


@pytest.fixture
def store(made: Made) -> Store:
    made.quick = {"first": Way(500.0), "second": Way(600.0), "third": Way(400.0, wrong=True)}
    made.near = {"first": [Way(480.0)]}
    opened = Store.open(None)
    found = find(PROBLEM, CPU, Policy(), mode=Mode.FULL, store=opened, budget_us=2e6)
    assert found.choice is not None
    assert found.choice.candidate.id == "quick/first[n=0]"
    made.built.clear()
    return opened


def watched(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """From now on who lists everything fails. Which candidates are made by their names."""
    names: list[str] = []

    def one(self: Any, name: str, problem: Any, device: Any, policy: Any) -> Candidate:
        names.append(name)
        algorithm, _, number = name.removeprefix("quick/").partition("[n=")
        return made_backend.near(problem, algorithm, int(number[:-1])) if number else made_backend.offer(problem, name)

    def everything(*_: Any) -> Iterator[Candidate]:
        raise AssertionError("everything is listed")

    monkeypatch.setattr(made_backend.MadeQuick, "configured", one)
    monkeypatch.setattr(made_backend.MadeQuick, "candidates", everything)
    return names


@pytest.fixture
def asked(store: Store, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    return watched(monkeypatch)


def chosen(store: Store, mode: Mode = Mode.QUICK, **policy: Any) -> str:
    return Session(mode, store).answer(PROBLEM, CPU, Policy(**policy), None, None).captured.candidate.id


@pytest.mark.parametrize("mode", [Mode.QUICK, Mode.FULL, Mode.HEURISTIC])
def test_the_choice_is_made_without_listing_or_running_anything(
    mode: Mode, made: Made, store: Store, asked: list[str]
) -> None:
    assert chosen(store, mode) == "quick/first[n=0]"
    # What was found wrong is passed over; of what costs more nobody asks.
    assert asked == ["quick/third", "quick/first[n=0]"]
    assert made.built == []


def test_a_choice_knows_what_it_saves(store: Store, asked: list[str]) -> None:
    choice = Session(Mode.QUICK, store).answer(PROBLEM, CPU, Policy(), None, None).captured
    assert choice.device_us is not None
    assert choice.torch_device_us is not None
    assert choice.device_us.value == pytest.approx(480.0, rel=0.01)
    assert choice.torch_device_us.value == pytest.approx(1000.0, rel=0.01)


@pytest.mark.usefixtures("asked")
def test_where_backends_are_others_now_everything_is_listed(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(made_backend.MadeCompiled, "fingerprint", lambda self, device: "2")
    with pytest.raises(AssertionError, match="everything is listed"):
        chosen(store)


@pytest.mark.usefixtures("asked")
def test_where_another_backend_is_there_now_everything_is_listed(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    more = [*listing.fingerprints(CPU), "another (1)"]
    monkeypatch.setattr(listing, "fingerprints", lambda device, kind: more)
    with pytest.raises(AssertionError, match="everything is listed"):
        chosen(store)


@pytest.mark.usefixtures("asked")
def test_under_another_permission_everything_is_listed(store: Store) -> None:
    with pytest.raises(AssertionError, match="everything is listed"):
        chosen(store, deterministic=True)


@pytest.mark.usefixtures("asked")
def test_what_is_to_be_verified_is_listed(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CONVWRIGHT_TRUST", "verify")
    settings.cache_clear()
    with pytest.raises(AssertionError, match="everything is listed"):
        chosen(store)


def test_what_took_a_process_with_it_since_then_is_passed_over(store: Store, asked: list[str]) -> None:
    died = store.trying(PROBLEM.key, CPU.key, "quick/first[n=0]", "1")
    died.__enter__()
    store._database.execute("UPDATE trying SET pid = 999999999, started = 'never'")
    assert chosen(store) == "quick/first"
    assert asked == ["quick/third", "quick/first[n=0]", "quick/first"]


def test_pytorchs_own_call_is_chosen_where_nothing_is_surely_better(
    made: Made, monkeypatch: pytest.MonkeyPatch
) -> None:
    made.quick, opened = {"a": Way(995.0)}, Store.open(None)
    find(PROBLEM, CPU, Policy(), mode=Mode.FULL, store=opened, budget_us=2e6)
    watched(monkeypatch)
    assert chosen(opened) == "torch/default"


def test_what_is_not_sure_stands_in_nobodys_way_in_a_store_either(made: Made, monkeypatch: pytest.MonkeyPatch) -> None:
    be_vague(monkeypatch)
    made.quick = {"vague": Way(600.0), "sure": Way(650.0), "slower": Way(700.0), "same": Way(1000.0)}
    store = Store.open(None)
    found = find(PROBLEM, CPU, Policy(), mode=Mode.FULL, store=store, budget_us=2e6)
    assert found.choice is not None
    assert found.choice.candidate.id == "quick/sure"
    names = watched(monkeypatch)
    assert chosen(store) == "quick/sure"
    assert names == ["quick/sure"]


def test_what_cannot_be_read_is_searched_for_again_and_then_gone(made: Made, tmp_path: Path) -> None:
    made.quick = {"first": Way(500.0), "second": Way(600.0)}
    path = tmp_path / "findings.sqlite"
    with Store.open(path) as store:
        find(PROBLEM, CPU, Policy(), mode=Mode.QUICK, store=store)
        with closing(sqlite3.connect(path)) as other, other:
            other.execute("UPDATE finding SET measurement = '{}' WHERE candidate = 'quick/first'")
            other.execute("INSERT INTO finding SELECT problem, device, 'quick/lost', fingerprint, '{}', NULL, created "
                          "FROM finding WHERE candidate = 'quick/first'")  # fmt: skip
        made.built.clear()
        found = find(PROBLEM, CPU, Policy(), mode=Mode.QUICK, store=store)
        assert found.choice is not None
        assert (found.choice.candidate.id, "quick/first" in made.built) == ("quick/first", True)
        assert "quick/lost" not in store.entries(PROBLEM.key, CPU.key)
        made.built.clear()
        find(PROBLEM, CPU, Policy(), mode=Mode.QUICK, store=store)
        assert not made.built
