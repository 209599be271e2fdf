"""A smooth function through few rows."""

from __future__ import annotations

import numpy as np
import pytest

from convwright.errors import BadInput
from convwright.prediction.smooth_correction import SmoothCorrection, fit_smooth_correction


def smooth(rows: np.ndarray) -> np.ndarray:
    values: np.ndarray = np.sin(rows[:, 0]) + 0.3 * rows[:, 1] + 5
    return values


def drawn(rows: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).uniform(0, 3, (rows, 2))


def test_it_finds_what_is_smooth() -> None:
    rows, unseen = drawn(150), drawn(300, seed=1)
    fitted = fit_smooth_correction(rows, smooth(rows))
    assert np.abs(fitted.predict(unseen) - smooth(unseen)).mean() < 0.02


def test_scatter_is_not_followed() -> None:
    rows, unseen = drawn(200), drawn(300, seed=1)
    scattered = smooth(rows) + 0.3 * np.random.default_rng(2).standard_normal(200)
    assert np.abs(fit_smooth_correction(rows, scattered).predict(unseen) - smooth(unseen)).mean() < 0.12


def test_far_away_it_is_the_mean() -> None:
    rows = drawn(100)
    fitted = fit_smooth_correction(rows, smooth(rows))
    assert fitted.predict(rows[:3] + 1e6) == pytest.approx(smooth(rows).mean())


def test_arrays_and_record_give_it_back() -> None:
    rows = drawn(40)
    fitted = fit_smooth_correction(rows, smooth(rows))
    again = SmoothCorrection.from_arrays(fitted.to_arrays(), fitted.to_json())
    np.testing.assert_array_equal(again.predict(rows), fitted.predict(rows))
    with pytest.raises(BadInput, match="needs the arrays centre"):
        SmoothCorrection.from_arrays({}, fitted.to_json())
    with pytest.raises(BadInput, match="do not fit each other"):
        SmoothCorrection.from_arrays(fitted.to_arrays() | {"weights": np.ones(2)}, fitted.to_json())
