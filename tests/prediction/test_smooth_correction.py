"""A smooth function of features, by kernel regression among rows of one kind."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from convwright.errors import BadInput
from convwright.prediction.smooth_correction import SmoothCorrection, fit_smooth_correction


def smooth(rows: np.ndarray) -> np.ndarray:
    values: np.ndarray = np.sin(rows[:, 0]) + 0.3 * rows[:, 1] + 5
    return values


def drawn(rows: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).uniform(0, 3, (rows, 2))


def of_kinds(rows: int, kinds: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Rows that say of which kind they are, and a function that differs between kinds."""
    sizes, kind = drawn(rows, seed), np.arange(rows) % kinds
    return np.hstack([sizes, np.eye(kinds)[kind]]), smooth(sizes) * (1 + kind)


def test_it_finds_what_is_smooth() -> None:
    rows, unseen = drawn(150), drawn(300, seed=1)
    fitted = fit_smooth_correction(rows, smooth(rows))
    assert np.abs(fitted.predict(unseen) - smooth(unseen)).mean() < 0.02


def test_scatter_is_not_followed() -> None:
    rows, unseen = drawn(200), drawn(300, seed=1)
    scattered = smooth(rows) + 0.3 * np.random.default_rng(2).standard_normal(200)
    assert np.abs(fit_smooth_correction(rows, scattered).predict(unseen) - smooth(unseen)).mean() < 0.12


def test_a_few_wrong_targets_are_not_followed() -> None:
    rows, unseen = drawn(200), drawn(300, seed=1)
    wrong = smooth(rows)
    wrong[::20] += 4
    assert np.abs(fit_smooth_correction(rows, wrong).predict(unseen) - smooth(unseen)).mean() < 0.06


def test_features_that_say_nothing_hardly_count() -> None:
    """Twenty of them, among which two matter."""
    random = np.random.default_rng(3)
    rows, unseen = (
        np.hstack([drawn(count, seed), random.uniform(0, 3, (count, 20))]) for count, seed in ((200, 0), (300, 1))
    )
    fitted = fit_smooth_correction(rows, smooth(rows))
    assert np.abs(fitted.predict(unseen) - smooth(unseen)).mean() < 0.1
    counts = dict(zip(fitted.columns.tolist(), fitted.scale.tolist(), strict=True))
    assert min(counts[0], counts[1]) > 2 * max(value for column, value in counts.items() if column > 1)


def test_kinds_have_nothing_in_common_but_what_counts() -> None:
    (rows, targets), (unseen, right) = of_kinds(300, 3), of_kinds(90, 3, seed=1)
    fitted = fit_smooth_correction(rows, targets, apart=(2, 3, 4))
    assert np.abs(fitted.predict(unseen) - right).mean() < 0.1
    of_others, weights = unseen[:, 4] == 0, fitted.weights.copy()
    weights[fitted.starts[3] :] = 0.0
    changed = SmoothCorrection.from_arrays(fitted.to_arrays() | {"weights": weights}, fitted.to_json())
    same = changed.predict(unseen) == fitted.predict(unseen)
    np.testing.assert_array_equal(same, of_others)


def test_a_kind_that_is_not_known_is_predicted_by_all() -> None:
    rows, targets = of_kinds(300, 3)
    fitted = fit_smooth_correction(rows, targets, apart=(2, 3, 4))
    stranger = np.hstack([drawn(50, seed=1), np.zeros((50, 3))])
    predicted = fitted.predict(stranger)
    assert targets.min() < predicted.min()
    assert predicted.max() < targets.max()


def test_far_away_it_ends_where_it_no_longer_matters_how_far() -> None:
    rows = drawn(100)
    fitted = fit_smooth_correction(rows, smooth(rows))
    far, further = rows[:3] + 1e6, rows[:3] + 1e9
    np.testing.assert_array_equal(fitted.predict(far), fitted.predict(further))
    assert np.abs(fitted.predict(far)).max() < 30


def test_arrays_and_record_give_it_back() -> None:
    rows, targets = of_kinds(120, 2)
    fitted = fit_smooth_correction(rows, targets, apart=(2, 3))
    arrays, record = fitted.to_arrays(), fitted.to_json()
    np.testing.assert_array_equal(SmoothCorrection.from_arrays(arrays, record).predict(rows), fitted.predict(rows))
    with pytest.raises(BadInput, match="needs the arrays centre"):
        SmoothCorrection.from_arrays({}, record)
    wrong: list[dict[str, Any]] = [
        {"weights": np.ones(2)}, {"columns": fitted.columns + 9}, {"apart": np.array([2, 7])}, {"means": np.ones(2)},
        {"starts": fitted.starts[::-1]}, {"starts": fitted.starts + 1}, {"deviation": 0 * fitted.deviation},
    ]  # fmt: skip
    wrong += [{name: np.asarray(arrays[name])[None]} for name in ("columns", "weights", "apart", "starts")]
    wrong += [{"weights": np.float64(1.0)}]
    for each in wrong:
        with pytest.raises(BadInput, match="do not fit each other"):
            SmoothCorrection.from_arrays(arrays | each, record)
    for name in ("centre", "scale", "weights", "means", "references"):
        with pytest.raises(BadInput, match="needs finite numbers"):
            SmoothCorrection.from_arrays(arrays | {name: arrays[name] * np.nan}, record)
    for named in ({"linear": np.inf}, {"features": np.inf}):
        with pytest.raises(BadInput, match="a smooth correction needs"):
            SmoothCorrection.from_arrays(arrays, record | named)


def test_the_same_rows_give_the_same_function() -> None:
    rows = drawn(60)
    first, second = (fit_smooth_correction(rows, smooth(rows)).predict(rows) for _ in range(2))
    np.testing.assert_array_equal(first, second)
