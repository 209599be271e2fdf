"""What is like the rows of a fit, and what is not."""

from __future__ import annotations

import numpy as np
import pytest

from convwright.errors import BadInput
from convwright.prediction.domain import Domain, fit_domain
from prediction.made_times import times


@pytest.mark.parametrize("false_alarms", [0.05, 0.2])
def test_rows_like_those_of_the_fit_raise_few_alarms(false_alarms: float) -> None:
    """The mean over many fits is at most the promise, and not far below it."""
    alarms = []
    for seed in range(60):
        rows = times(400, seed=seed).features
        domain = fit_domain(rows[:300], np.arange(300), false_alarms=false_alarms)
        alarms.append(np.mean(~domain.contains(rows[300:])))
    assert false_alarms * 0.7 < np.mean(alarms) < false_alarms * 1.2


def test_far_rows_are_outside() -> None:
    rows = times(300).features
    domain = fit_domain(rows, np.arange(300))
    assert domain.contains(rows).mean() > 0.95
    assert not domain.contains(rows + 6).any()
    assert not domain.contains(rows * np.array([1, 1, 5]) + np.array([0, 0, 4])).any()


def test_one_far_feature_among_many_is_enough() -> None:
    rows = np.random.default_rng(0).standard_normal((600, 60))
    domain = fit_domain(rows[:300], np.arange(300))
    assert domain.contains(rows[300:]).mean() > 0.9
    rows[300:, 7] = 9
    assert not domain.contains(rows[300:]).any()


def test_a_gap_between_rows_is_outside() -> None:
    """Within the range of each feature, and near no row."""
    random = np.random.default_rng(0)
    rows = np.repeat([[0.0, 0.0], [10.0, 10.0]], 100, axis=0) + random.standard_normal((200, 2))
    domain = fit_domain(rows, np.arange(200))
    assert not domain.contains(np.array([[0.0, 10.0], [5.0, 5.0]])).any()


def test_another_value_of_what_never_varied_is_outside() -> None:
    rows = times(300).features
    rows[:, 1] = 3.0
    domain = fit_domain(rows, np.arange(300))
    inside = rows[:20].copy()
    rows[:, 1] = 5.0
    assert domain.contains(inside).all()
    assert not domain.contains(rows).any()


def test_rows_of_a_group_do_not_vouch_for_each_other() -> None:
    """Each problem twice: a twin among the references would make the limit nearly 0."""
    once = times(300).features
    twice, groups = np.repeat(once, 2, axis=0), np.repeat(np.arange(300), 2)
    assert fit_domain(twice, groups).limit > 0.05 > fit_domain(twice, np.arange(600)).score(once[:1])[0] - 0.05
    assert fit_domain(twice, groups).contains(times(300, seed=9).features).mean() > 0.85


def test_arrays_and_record_give_the_domain_back() -> None:
    rows = times(100).features
    domain = fit_domain(rows, np.arange(100))
    again = Domain.from_arrays(domain.to_arrays(), domain.to_json())
    np.testing.assert_array_equal(again.score(rows), domain.score(rows))
    assert again.limit == domain.limit


def test_what_is_no_domain_is_refused() -> None:
    domain = fit_domain(times(100).features, np.arange(100))
    with pytest.raises(BadInput, match="needs the arrays centre, deviation, references and a limit"):
        Domain.from_arrays({}, domain.to_json())
    with pytest.raises(BadInput, match="must be a matrix of finite numbers that fits its centre"):
        Domain.from_arrays(domain.to_arrays() | {"centre": np.ones(2)}, domain.to_json())
    for name, array in domain.to_arrays().items():
        with pytest.raises(BadInput, match="must be a matrix of finite numbers"):
            Domain.from_arrays(domain.to_arrays() | {name: np.full_like(array, np.nan)}, domain.to_json())
    with pytest.raises(BadInput, match="at least 3 groups, got 1"):
        fit_domain(times(100).features, np.zeros(100))
