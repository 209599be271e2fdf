"""Modes predict and predict-top: what runs, what is chosen, and what the store keeps of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from convwright.core.candidate import Candidate
from convwright.core.device import DeviceFacts
from convwright.core.finding import Interval
from convwright.core.policy import Policy
from convwright.core.predictor import Prediction
from convwright.core.profiles import profile
from convwright.prediction import models
from convwright.settings import Mode
from convwright.store.store import Store
from convwright.tuning import predicted_search
from convwright.tuning.find import Findings, find
from convwright.tuning.session import Session
from tuning.made import CPU, PROBLEM, FakeTuner

FAST, SECOND, THIRD = "reference/gemm", "reference/direct", "reference/fft"
OWN = "torch/default"


@dataclass
class Known:
    """Predicts these times, and 100 µs for others, within 5 %."""

    times_us: dict[str, float]
    in_domain: bool = True
    asked: list[int] = field(default_factory=list)

    def predict(self, candidate: Candidate, device: DeviceFacts) -> Prediction | None:
        return self.predict_all([candidate], device)[0]

    def predict_all(self, candidates: Sequence[Candidate], device: DeviceFacts) -> list[Prediction | None]:
        self.asked.append(len(candidates))
        times = [self.times_us.get(each.id, 100.0) for each in candidates]
        return [Prediction(Interval(us, us / 1.05, us * 1.05), self.in_domain) for us in times]


@pytest.fixture
def model(monkeypatch: pytest.MonkeyPatch) -> Known:
    known = Known({FAST: 10.0, SECOND: 10.2, THIRD: 60.0})
    monkeypatch.setattr(predicted_search, "served", lambda device, store: models.Served(known, models.Origin.LEARNED))
    return known


@pytest.fixture
def store() -> Store:
    return Store.open(None)


def found(mode: Mode, store: Store, device: DeviceFacts = CPU) -> Findings:
    return find(PROBLEM, device, Policy(), mode=mode, store=store)


def chosen(result: Findings) -> str | None:
    return None if result.choice is None else result.choice.candidate.id


def test_mode_predict_runs_nothing_and_chooses(fake: FakeTuner, model: Known, store: Store) -> None:
    result = found(Mode.PREDICT, store)
    assert (chosen(result), fake.calls) == (FAST, [])
    assert result.predictions is not None
    first = result.verdicts[0]
    assert (first.call_us, first.finding.measurement) == (10.0, None)
    assert first.reason == "the winner by prediction, 10.00x as fast as PyTorch's own call"
    assert result.to_json()["candidates"][0]["predicted"]["time_us"]["value"] == 10.0


def test_outside_of_what_is_learned_pytorchs_own_call_stays(fake: FakeTuner, model: Known, store: Store) -> None:
    model.in_domain = False
    assert chosen(found(Mode.PREDICT, store)) == OWN


def test_what_was_measured_counts_more_than_what_is_predicted(fake: FakeTuner, model: Known, store: Store) -> None:
    fake.times_us[FAST] = 500.0
    found(Mode.FULL, store)
    assert chosen(found(Mode.PREDICT, store)) == OWN, "which the store has timed, as it has all others"


def test_mode_predict_top_runs_those_whose_intervals_overlap(fake: FakeTuner, model: Known, store: Store) -> None:
    fake.times_us |= {FAST: 30.0, SECOND: 20.0}
    result = found(Mode.PREDICT_TOP, store)
    assert fake.calls == [[OWN, FAST, SECOND]]
    assert chosen(result) == SECOND
    assert result.choice is not None
    assert result.choice.measurement is not None


def test_it_is_not_made_again(fake: FakeTuner, model: Known, store: Store) -> None:
    fake.times_us |= {FAST: 30.0, SECOND: 20.0}
    first, second = found(Mode.PREDICT_TOP, store), found(Mode.PREDICT_TOP, store)
    assert chosen(first) == chosen(second) == SECOND
    assert len(fake.calls) == 1
    found(Mode.QUICK, store)
    assert len(fake.calls) == 2, "a quick search finds out more"


def test_a_quick_search_serves_it(fake: FakeTuner, model: Known, store: Store) -> None:
    found(Mode.QUICK, store)
    calls = len(fake.calls)
    found(Mode.PREDICT_TOP, store)
    assert len(fake.calls) == calls


@pytest.mark.parametrize("mode", [Mode.PREDICT, Mode.PREDICT_TOP])
def test_the_store_says_which_mode_made_a_choice(mode: Mode, fake: FakeTuner, model: Known, tmp_path: Path) -> None:
    with Store.open(tmp_path / "findings.sqlite") as store:
        found(mode, store)
        written = tmp_path / "findings.jsonl"
        store.export(written)
    lines = [line for line in written.read_text().splitlines() if f'"{mode} ' in line]
    assert len(lines) == 1
    assert FAST in lines[0]


@pytest.mark.parametrize("mode", [Mode.PREDICT, Mode.PREDICT_TOP])
def test_for_a_device_that_is_not_here_both_predict(mode: Mode, fake: FakeTuner, store: Store) -> None:
    result = found(mode, store, profile("h200"))
    assert result.choice is not None
    assert (result.mode, result.predictions is not None, fake.calls) == (Mode.PREDICT, True, [])


def test_calls_of_a_session_are_decided_by_prediction(fake: FakeTuner, model: Known, store: Store) -> None:
    session = Session(Mode.PREDICT, store)
    answer = session.answer(PROBLEM, CPU, Policy(), None, None)
    assert answer.captured.candidate.id == answer.eager.candidate.id == FAST
    assert (answer.captured.device_us, fake.calls) == (None, [])
    asked = list(model.asked)
    assert session.answer(PROBLEM, CPU, Policy(), None, None) == answer
    assert model.asked == asked


def test_calls_of_a_session_run_the_likeliest(fake: FakeTuner, model: Known, store: Store) -> None:
    fake.times_us |= {FAST: 30.0, SECOND: 20.0}
    answer = Session(Mode.PREDICT_TOP, store).answer(PROBLEM, CPU, Policy(), None, None)
    assert answer.captured.candidate.id == SECOND
    assert fake.calls == [[OWN, FAST, SECOND]]
