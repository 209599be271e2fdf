"""Boosted trees as arrays, held against scikit-learn's own predictions."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import pytest
from sklearn.ensemble import HistGradientBoostingRegressor

from convwright.errors import BackendError, BadInput
from convwright.prediction.boosted_trees import BoostedTrees, Loss, TreeSettings, exported, fit_boosted_trees
from prediction.made_times import times

SMALL = TreeSettings(trees=10, members=1)


def small() -> BoostedTrees:
    made = times(200)
    return fit_boosted_trees(made.features, np.log(made.measured_us), SMALL)


@pytest.mark.parametrize("loss", ["squared_error", "absolute_error"])
def test_predictions_are_scikit_learns(loss: Loss) -> None:
    made, unseen = times(600), times(500, seed=1).features * 1.2 - 0.3
    models = [
        HistGradientBoostingRegressor(loss=loss, max_iter=25, max_leaf_nodes=31, random_state=seed, max_features=0.5)
        for seed in range(2)
    ]
    theirs = np.mean([each.fit(made.features, made.measured_us).predict(unseen) for each in models], axis=0)
    np.testing.assert_allclose(exported(models).predict(unseen), theirs, rtol=1e-9, atol=1e-9)


def test_a_row_at_a_threshold_goes_where_scikit_learn_sends_it() -> None:
    """Features are whole numbers, and thresholds lie on some of them if asked to."""
    rows = np.random.default_rng(0).integers(0, 6, (300, 2)).astype(float)
    model = HistGradientBoostingRegressor(max_iter=20).fit(rows, rows[:, 0] * rows[:, 1])
    trees = exported([model])
    at = np.stack([np.resize(trees.threshold[np.isfinite(trees.threshold)], 40)] * 2, axis=1)
    np.testing.assert_allclose(trees.predict(at), model.predict(at), rtol=1e-9, atol=1e-9)


def test_many_rows_are_predicted_like_one_by_one() -> None:
    trees, rows = small(), times(5000, seed=3).features
    np.testing.assert_array_equal(trees.predict(rows)[[0, 2500, 4999]], trees.predict(rows[[0, 2500, 4999]]))
    assert trees.predict(rows[:0]).shape == (0,)


def test_the_same_rows_give_the_same_trees() -> None:
    for name, array in small().to_arrays().items():
        np.testing.assert_array_equal(array, small().to_arrays()[name])


def test_arrays_and_record_give_the_trees_back() -> None:
    trees, rows = small(), times(50, seed=2).features
    again = BoostedTrees.from_arrays(trees.to_arrays(), trees.to_json())
    np.testing.assert_array_equal(again.predict(rows), trees.predict(rows))


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"schema": "else"}, "must have the schema 'convwright boosted trees 1', got 'else'"),
        ({"depth": None}, "need the numbers features, baseline and depth"),
        ({"features": 1}, "do not fit each other"),
        ({"depth": -1}, "do not fit each other"),
    ],
)
def test_a_wrong_record_is_one_sentence(change: dict[str, Any], told: str) -> None:
    trees = small()
    with pytest.raises(BadInput, match=told):
        BoostedTrees.from_arrays(trees.to_arrays(), trees.to_json() | change)


@pytest.mark.parametrize("name", ["roots", "feature", "threshold", "children", "value"])
def test_a_missing_or_short_array_is_one_sentence(name: str) -> None:
    trees = small()
    arrays = trees.to_arrays()
    with pytest.raises(BadInput, match=f"{name} is missing"):
        BoostedTrees.from_arrays({key: value for key, value in arrays.items() if key != name}, trees.to_json())
    with pytest.raises(BadInput, match="do not fit each other"):
        BoostedTrees.from_arrays(arrays | {name: arrays[name][:-1] if name != "roots" else -arrays[name] - 1},
                                 trees.to_json())  # fmt: skip


def test_trees_that_lead_in_circles_are_refused() -> None:
    trees = small()
    children = trees.children.copy()
    children[trees.roots[1]] = 0
    with pytest.raises(BadInput, match="do not fit each other"):
        BoostedTrees.from_arrays(trees.to_arrays() | {"children": children}, trees.to_json())


@pytest.mark.parametrize("name", ["threshold", "value"])
def test_numbers_that_are_none_are_refused(name: str) -> None:
    trees = small()
    arrays = trees.to_arrays()
    with pytest.raises(BadInput, match="do not fit each other"):
        BoostedTrees.from_arrays(arrays | {name: np.full_like(arrays[name], np.nan)}, trees.to_json())


def test_rows_that_do_not_fit_are_refused() -> None:
    trees = small()
    with pytest.raises(BadInput, match=r"a matrix of 3 columns, got the shape \(1, 2\)"):
        trees.predict(np.ones((1, 2)))
    with pytest.raises(BadInput, match="finite numbers"):
        trees.predict(np.array([[1.0, np.nan, 1.0]]))


def test_without_scikit_learn_fitting_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sklearn.ensemble", None)
    with pytest.raises(BackendError, match=r"needs scikit-learn: pip install 'convwright\[predict\]'"):
        small()
