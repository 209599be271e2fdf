"""A time model: what it predicts, what it says of its error, and what it refuses."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from convwright.errors import BadInput
from convwright.prediction import time_model
from convwright.prediction.boosted_trees import BoostedTrees, TreeSettings
from convwright.prediction.learned_rates import LearnedRates
from convwright.prediction.time_model import TimeModel, fit_time_model
from prediction.made_times import NAMES, Times, times

pytestmark = pytest.mark.usefixtures("few_steps")
SMALL = TreeSettings(trees=40, learning_rate=0.12, losses=("squared_error",), members=1)


FEW_TREES = replace(SMALL, trees=5)


def fitted(made: Times, groups: np.ndarray | None = None, *, settings: TreeSettings = SMALL) -> TimeModel:
    return fit_time_model(*made, groups, device="H200", names=NAMES, settings=settings)


@pytest.fixture(scope="module")
def model(few_steps: None) -> TimeModel:
    return fitted(times(300))


def test_it_predicts_within_the_scatter_and_knows_it(model: TimeModel) -> None:
    unseen = times(1000, seed=1)
    predicted = model.predict(unseen.features, unseen.physics_us)
    off = np.abs(predicted.value_us / unseen.measured_us - 1)
    assert off.mean() < 0.08  # the scatter of 5 % alone gives 4 %
    assert model.error.mape == pytest.approx(off.mean(), rel=0.25)
    assert model.error.median == pytest.approx(np.median(off), rel=0.25)
    held = (predicted.low_us <= unseen.measured_us) & (unseen.measured_us <= predicted.high_us)
    assert held.mean() == pytest.approx(0.9, abs=0.06)
    assert predicted.in_domain.mean() == pytest.approx(0.95, abs=0.06)


def test_physics_carries_it_beyond_the_times_it_saw(model: TimeModel) -> None:
    """Ten times the physics is ten times the time."""
    unseen = times(50, seed=1)
    once, ten = (model.predict(unseen.features, factor * unseen.physics_us).value_us for factor in (1, 10))
    np.testing.assert_allclose(ten, 10 * once)


def test_what_is_far_away_is_said_to_be(model: TimeModel) -> None:
    unseen = times(50, seed=1)
    assert not model.predict(unseen.features + 9, unseen.physics_us).in_domain.any()


def test_rows_of_one_problem_do_not_predict_each_other() -> None:
    """Problems that scatter by themselves, each twice: with a twin in the fit the error would seem to be half."""
    once = times(120, scatter=0.5)
    twice = Times(*(np.repeat(each, 2, axis=0) for each in once))
    together, apart = fitted(twice, np.repeat(np.arange(120), 2)), fitted(twice)
    assert together.error.mape > 1.15 * apart.error.mape


def test_many_rows_with_parts_learn_rates_and_others_learn_trees(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time_model, "_MANY", 100)
    for rows, terms, kind in ((99, (0, 1), BoostedTrees), (100, (0, 1), LearnedRates), (100, (), BoostedTrees)):
        made = times(rows)
        ratios = np.log(made.measured_us / made.physics_us)
        fitted = time_model.fit_correction(made.features, ratios, settings=FEW_TREES, apart=(), terms=terms)
        assert isinstance(fitted.rough, kind)


def test_a_larger_fit_holds_out_one_fold() -> None:
    error = fitted(times(2000), settings=FEW_TREES).error
    assert (error.folds, error.tried, error.rows) == (5, 1, 400)
    error = fitted(times(200), settings=FEW_TREES).error
    assert (error.folds, error.tried, error.rows) == (5, 5, 200)


@pytest.mark.parametrize(
    ("made", "told"),
    [
        (times(50)._replace(physics_us=np.ones(49)), "one row each"),
        (times(50)._replace(features=np.ones((50, 2))), "3 features, got"),
        (times(50)._replace(measured_us=np.zeros(50)), "measured_us must be finite and above 0, got 0.0"),
        (times(50)._replace(physics_us=np.full(50, np.nan)), "physics_us must be finite and above 0, got nan"),
        (times(9), "at least 10 problems, got 9"),
    ],
)
def test_what_nothing_can_be_learned_from_is_refused(made: Times, told: str) -> None:
    with pytest.raises(BadInput, match=told):
        fitted(made)
