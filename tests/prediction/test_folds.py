"""Folds keep the rows of a group together."""

from __future__ import annotations

import numpy as np

from convwright.prediction.folds import fold_of


def test_groups_stay_together_and_folds_are_even() -> None:
    groups = np.random.default_rng(0).integers(0, 103, 2000)
    fold = fold_of(groups, 5)
    by_group = {group: set(fold[groups == group].tolist()) for group in groups}
    assert all(len(folds) == 1 for folds in by_group.values())
    counts = np.bincount([min(folds) for folds in by_group.values()])
    assert counts.max() - counts.min() <= 1
    assert (fold_of(groups, 5, seed=1) != fold).any()
