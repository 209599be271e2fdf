"""What takes long to build is kept in the store as its backend writes it down, and read in the next process."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from convwright.core.candidate import Candidate
from convwright.core.device import DeviceFacts
from convwright.core.plan import Plan
from convwright.errors import BackendError
from convwright.store.store import Store
from convwright.tuning.stored_plan import stored_plan
from tuning import made_backend
from tuning.made import CPU, PROBLEM
from tuning.made_backend import Made, MadeCompiled, Way

SLOW = replace(made_backend.offer(PROBLEM, "compiled/slow"), compiles=True)


@pytest.fixture
def read(made: Made, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The texts that were read by a backend that writes its plans down."""
    made.compiled, made.quick = {"slow": Way(10.0)}, {"quick": Way(10.0)}
    texts: list[str] = []

    def again(self: MadeCompiled, candidate: Candidate, device: DeviceFacts, text: str) -> Plan:
        texts.append(text)
        if text == "garbled":
            raise BackendError("cuDNN was given data of another version")
        return made_backend.RightPlan(candidate)

    monkeypatch.setattr(MadeCompiled, "written", lambda self, plan: f"{plan.candidate.id} as text", raising=False)
    monkeypatch.setattr(MadeCompiled, "read", again, raising=False)
    return texts


def test_a_plan_is_built_once_and_read_by_the_next_process(made: Made, read: list[str], tmp_path: Path) -> None:
    with Store.open(tmp_path / "s.sqlite") as store:
        assert stored_plan(SLOW, CPU, store).candidate == SLOW
    assert (made.built, read) == (["compiled/slow"], [])
    with Store.open(tmp_path / "s.sqlite") as store:
        assert stored_plan(SLOW, CPU, store).candidate == SLOW
    assert (made.built, read) == (["compiled/slow"], ["compiled/slow as text"])


def test_under_another_version_or_on_another_device_it_is_built(
    made: Made, read: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    store = Store.open(None)
    stored_plan(SLOW, CPU, store)
    stored_plan(SLOW, replace(CPU, name="another CPU"), store)
    monkeypatch.setattr(MadeCompiled, "fingerprint", lambda self, device: "2")
    stored_plan(SLOW, CPU, store)
    assert (len(made.built), read) == (3, [])


def test_what_cannot_be_read_is_built_and_kept_instead(made: Made, read: list[str]) -> None:
    store = Store.open(None)
    store.keep_plan(PROBLEM.key, CPU.key, SLOW.id, "1", "garbled")
    stored_plan(SLOW, CPU, store)
    stored_plan(SLOW, CPU, store)
    assert (made.built, read) == (["compiled/slow"], ["garbled", "compiled/slow as text"])


@pytest.mark.usefixtures("read")
def test_what_is_quick_to_build_is_not_kept(made: Made) -> None:
    store = Store.open(None)
    for _ in range(2):
        stored_plan(made_backend.offer(PROBLEM, "quick/quick"), CPU, store)
    assert made.built == ["quick/quick"] * 2


def test_what_is_forgotten_is_built_again(made: Made, read: list[str]) -> None:
    store = Store.open(None)
    store.record(PROBLEM.key, CPU.key, SLOW.id, "1", None, "failed")
    stored_plan(SLOW, CPU, store)
    assert store.prune(0.0) == 1
    stored_plan(SLOW, CPU, store)
    store.clear()
    stored_plan(SLOW, CPU, store)
    assert (len(made.built), read) == (3, [])
