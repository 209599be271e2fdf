"""Times as sums of parts, each at a rate that is learned from features."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from convwright.errors import BadInput
from convwright.prediction.learned_rates import LearnedRates, fit_learned_rates

TERMS = (0, 1, 2)


def made(count: int, seed: int = 0, *, longer: float = 0.0) -> tuple[np.ndarray, np.ndarray]:
    """Rows of a physical estimate, two parts and a feature, and the logarithms of times by estimates. The first part
    takes up to four times its least time, depending on the feature, and the second 1.5 times. ``longer`` octaves are
    added to the parts."""
    random = np.random.default_rng(seed)
    parts, feature = random.uniform(0, 8, (count, 2)) + longer, random.uniform(-1, 1, count)
    estimate = parts.max(axis=1)
    times = 4.0 ** np.abs(feature) * 2 ** parts[:, 0] + 1.5 * 2 ** parts[:, 1]
    return np.column_stack([estimate, parts, feature]), np.log(times / 2**estimate)


@pytest.fixture(scope="module")
def fitted() -> LearnedRates:
    return fit_learned_rates(*made(1500), TERMS)


def test_it_finds_how_long_each_part_takes(fitted: LearnedRates) -> None:
    unseen, right = made(500, seed=1)
    assert np.abs(fitted.predict(unseen) - right).mean() < 0.03


def test_times_twice_as_long_as_any_that_it_saw_are_sums_of_parts_too(fitted: LearnedRates) -> None:
    unseen, right = made(500, seed=1, longer=1.0)
    assert np.abs(fitted.predict(unseen) - right).mean() < 0.06


def test_the_same_rows_give_the_same_rates() -> None:
    first, second = (fit_learned_rates(*made(100), TERMS).to_arrays() for _ in range(2))
    for name, array in first.items():
        np.testing.assert_array_equal(array, second[name])


def test_fitting_leaves_random_numbers_of_the_caller_alone() -> None:
    torch = pytest.importorskip("torch")
    before = torch.random.get_rng_state()
    fit_learned_rates(*made(100), TERMS)
    assert torch.equal(before, torch.random.get_rng_state())


def test_it_comes_back_from_its_arrays(fitted: LearnedRates) -> None:
    unseen, _ = made(50, seed=1)
    again = LearnedRates.from_arrays(fitted.to_arrays())
    np.testing.assert_array_equal(again.predict(unseen), fitted.predict(unseen))


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"bias": np.ones(3)}, "do not fit each other: 4 features"),
        ({"terms": np.array([0, 1, 4])}, "do not fit"),
        ({"terms": np.array([0, 1, -1])}, "do not fit"),
        ({"first": np.full((4, 128), np.nan)}, "do not fit"),
        ({"deviation": np.zeros(4)}, "do not fit"),
        ({"last": "text"}, "learned rates need the arrays terms, centre"),
    ],
)
def test_other_arrays_are_refused(fitted: LearnedRates, change: dict[str, Any], told: str) -> None:
    with pytest.raises(BadInput, match=told):
        LearnedRates.from_arrays(fitted.to_arrays() | change)
    lacks = fitted.to_arrays()
    del lacks["second"]
    with pytest.raises(BadInput, match="learned rates need the arrays"):
        LearnedRates.from_arrays(lacks)
