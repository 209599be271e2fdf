"""A model that is learned from observations: what it predicts, what it says of its errors, which rows count."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from convwright.core.candidate import Candidate
from convwright.core.observation import Outcome
from convwright.core.problem import ConvProblem
from convwright.errors import BadInput
from convwright.prediction import models, time_model
from convwright.prediction.boosted_trees import TreeSettings
from convwright.prediction.breakdown import breakdown
from convwright.prediction.features import PARTS, vocabulary
from convwright.prediction.learned_rates import LearnedRates
from convwright.prediction.learning import MOST_OF_AN_ORIGIN, Learned, balanced, learn, samples
from convwright.prediction.models import Origin, served
from prediction.made_observations import DEVICE, FAST, candidates, doubtful, law, observations, observed

pytestmark = pytest.mark.usefixtures("few_steps")

SMALL = TreeSettings(trees=40, leaves=8, learning_rate=0.2, losses=("squared_error",), members=1)
UNSEEN = [each.candidate for each in observations(40, seed=1)]


@pytest.fixture(scope="module")
def learned(few_steps: None) -> Learned:
    return learn(observations(watts=200.0), DEVICE, settings=SMALL)


def test_problems_that_it_has_not_seen_are_predicted(learned: Learned) -> None:
    predictions = learned.predictor.predict_all(UNSEEN, DEVICE)
    times = [each.measurement.device_us.value for each in observations(40, seed=1) if each.measurement is not None]
    off = [abs(each.time_us.value / us - 1) for each, us in zip(predictions, times, strict=True) if each is not None]
    assert np.mean(off) < 0.09  # the scatter of 5 % alone gives 4 %
    held = [
        each.time_us.low <= us <= each.time_us.high
        for each, us in zip(predictions, times, strict=True)
        if each is not None
    ]
    assert np.mean(held) > 0.8
    assert np.mean([each is not None and each.in_domain for each in predictions]) > 0.8


def test_rates_of_the_parts_are_learned_from_many_candidates(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time_model, "_MANY", 100)
    rates = learn(observations(), DEVICE, tried=1).model.correction.rough
    assert isinstance(rates, LearnedRates)
    names = vocabulary(each.candidate for each in observations())
    assert [names[term] for term in rates.terms] == ["log physics", *(f"log {part}" for part in PARTS)]


def test_its_report_says_the_same(learned: Learned) -> None:
    everything = learned.report.rows[0]
    assert (everything.label, everything.problems) == ("all", len({o.candidate.problem.key for o in observations()}))
    assert everything.mape == pytest.approx(learned.model.error.mape)
    assert everything.mape < 0.09
    assert everything.covered == pytest.approx(0.9, abs=0.08)
    by_latency = [row for row in learned.report.rows if row.label.endswith(" µs")]
    assert sum(row.rows for row in by_latency) == everything.rows
    assert {"conv forward", "cudnn"} <= {row.label for row in learned.report.rows}
    assert "MAPE" in str(learned.report)


def test_energy_is_learned_where_it_is_known(learned: Learned) -> None:
    prediction = learned.predictor.predict(UNSEEN[0], DEVICE)
    assert prediction is not None
    assert prediction.power_w is not None
    assert prediction.power_w.value == pytest.approx(200)
    assert prediction.energy_mj is not None
    assert prediction.energy_mj.value == pytest.approx(0.2 * prediction.time_us.value)
    assert prediction.energy_mj.low <= prediction.energy_mj.value <= prediction.energy_mj.high
    assert learn(observations(), DEVICE, settings=SMALL, tried=1).predictor.power is None


def test_what_is_like_nothing_that_it_has_seen_is_flagged_and_its_bounds_are_wide(learned: Learned) -> None:
    odd = candidates(ConvProblem.parse("g512mb1ic512ih1000oc512kh11 dt:fp32"))[0]
    unknown = replace(UNSEEN[0], algorithm="engine-99")
    for each in (odd, unknown):
        prediction = learned.predictor.predict(each, DEVICE)
        assert prediction is not None
        assert not prediction.in_domain
        assert prediction.time_us.high >= 4 * prediction.time_us.value


def test_only_sure_times_of_the_device_count() -> None:
    given = observations()
    first = given[0]
    other, failed = replace(first, device="NVIDIA A100"), replace(first, outcome=Outcome.FAILED, measurement=None)
    late = replace(observed(first.candidate, 77.0), created=9.0)
    assert len(samples([other, failed, doubtful(first)], DEVICE)) == 0
    known = samples([late, first], DEVICE)
    assert known.measured_us.tolist() == [77.0]


def test_few_observations_are_refused() -> None:
    needs = "a model of NVIDIA H200 needs at least 100 measured candidates, got 8"
    with pytest.raises(BadInput, match=f"^{needs}: measure more with `convwright sample`$"):
        learn(observations()[:8], DEVICE)
    first, *others = observations()[:10]
    several = [
        first, *others[:7], replace(first, created=9.0), doubtful(others[7]),
        replace(others[8], outcome=Outcome.FAILED, measurement=None), replace(first, device="NVIDIA A100"),
    ]  # fmt: skip
    why = "1 from other devices, 1 that were not measured, 1 with doubtful times, 1 repeats of a candidate"
    with pytest.raises(BadInput) as refused:
        learn(several, DEVICE)
    said, _, step = str(refused.value).partition("; ")
    assert said.startswith(f"{needs} from 12 observations (left out: ")
    assert set(said.partition("left out: ")[2].rstrip(")").split(", ")) == set(why.split(", "))
    assert step == "stop other work on the device, and measure more with `convwright sample`"


def test_no_origin_counts_for_more_than_others() -> None:
    origins = np.array(["sweep"] * 5000 + [f"layer {i}" for i in range(20)] * 5)
    kept = balanced(origins)
    assert (origins[kept] == "sweep").sum() == MOST_OF_AN_ORIGIN
    assert len(kept) == MOST_OF_AN_ORIGIN + 100
    assert len(balanced(origins[:5000])) == 5000


def test_a_model_in_its_file_predicts_the_same(learned: Learned, tmp_path: Path) -> None:
    store = tmp_path / "findings.sqlite"
    place = models.folder_beside(store) / models.file_name(DEVICE)
    assert models.save(learned.predictor, place) == (place, place.with_name(place.stem + ".power.json"))
    found = served(DEVICE, store)
    assert (found.origin, found.path) == (Origin.LEARNED, place)
    assert found.predictor.predict_all(UNSEEN, DEVICE) == learned.predictor.predict_all(UNSEEN, DEVICE)
    assert "220 measured candidates" in str(found)


def test_a_model_of_another_device_is_refused(learned: Learned, tmp_path: Path) -> None:
    path = tmp_path / "mine.npz"
    models.save(learned.predictor, path)
    with pytest.raises(BadInput, match="is a model of NVIDIA H200, but times of another are needed"):
        served(replace(DEVICE, name="another"), model=path)
    with pytest.raises(BadInput, match=r"nowhere\.npz cannot be read as a time model"):
        served(DEVICE, model=tmp_path / "nowhere.npz")
    with pytest.raises(BadInput, match=r"a model's file must end in \.npz, got 'mine'"):
        models.save(learned.predictor, "mine")


def test_factors_of_a_breakdown_multiply_to_the_time(learned: Learned) -> None:
    for each in UNSEEN[:8]:
        made, prediction = breakdown(each, DEVICE, learned.model), learned.predictor.predict(each, DEVICE)
        assert prediction is not None
        assert made.predicted_us == pytest.approx(prediction.time_us.value)
        factors = [factor for _, factor in made.factors]
        assert made.physics_us * np.prod(factors) == pytest.approx(made.predicted_us)


def test_a_breakdown_names_the_cause(learned: Learned) -> None:
    """Whatever else differs, one algorithm takes 1.5 times as long as the other."""

    def share(candidate: Candidate) -> float:
        return dict(breakdown(candidate, DEVICE, learned.model).factors)["algorithm"]

    slow, _, fast, _ = candidates(UNSEEN[0].problem)
    assert fast.algorithm == FAST
    assert share(slow) / share(fast) == pytest.approx(law(slow) / law(fast), rel=0.2)
