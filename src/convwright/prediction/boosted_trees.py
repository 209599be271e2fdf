"""Boosted regression trees: fitted with scikit-learn, stored as plain arrays, evaluated with numpy alone.

>>> import numpy as np
>>> stump = BoostedTrees(
...     features=1, baseline=10.0, roots=np.array([0]), feature=np.array([0, 0, 0]),
...     threshold=np.array([0.5, np.inf, np.inf]), children=np.array([[1, 2], [1, 1], [2, 2]]),
...     value=np.array([0.0, -1.0, 1.0]), depth=1,
... )
>>> stump.predict(np.array([[0.5], [0.6]])).tolist()
[9.0, 11.0]
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any, Literal

from convwright.errors import BackendError, BadInput

if TYPE_CHECKING:
    from numpy import float64, int32
    from numpy.typing import NDArray

Loss = Literal["squared_error", "absolute_error"]

SCHEMA = "convwright boosted trees 1"
_ARRAYS = ("roots", "feature", "threshold", "children", "value")
# Rows times trees evaluated at once: more do not fit into the caches.
_AT_ONCE = 1 << 17


@dataclass(frozen=True, slots=True)
class TreeSettings:
    """How trees are grown. Fits for each loss with ``members`` different seeds are averaged."""

    trees: int = 200
    leaves: int = 10
    rows_per_leaf: int = 3
    learning_rate: float = 0.07
    features_per_split: float = 0.3
    losses: tuple[Loss, ...] = ("squared_error", "absolute_error")
    members: int = 3


@dataclass(frozen=True, slots=True, eq=False)
class BoostedTrees:
    """The nodes of all trees in one list. A row goes to ``children[node, 0]`` if its ``feature`` is at most
    ``threshold``, else to ``children[node, 1]``. A leaf is its own child. A prediction is ``baseline`` plus the
    ``value`` of the leaf that the row reaches in each tree."""

    features: int
    baseline: float
    roots: NDArray[int32]
    feature: NDArray[int32]
    threshold: NDArray[float64]
    children: NDArray[int32]
    value: NDArray[float64]
    depth: int  # of the deepest tree

    def predict(self, rows: NDArray[float64]) -> NDArray[float64]:
        """One number for each row of a matrix of finite features."""
        import numpy as np

        rows = checked_rows(rows, self.features)
        predicted = np.full(len(rows), self.baseline)
        step = max(1, _AT_ONCE // max(1, len(self.roots)))
        for begin in range(0, len(rows), step):
            predicted[begin : begin + step] += self._sums(rows[begin : begin + step])
        return predicted

    def _sums(self, rows: NDArray[float64]) -> NDArray[float64]:
        import numpy as np

        children, values = self.children.ravel(), rows.ravel()
        first = (np.arange(len(rows), dtype=np.int64) * self.features)[:, None]
        nodes = np.broadcast_to(self.roots, (len(rows), len(self.roots)))
        for _ in range(self.depth):
            goes_right = values[first + self.feature[nodes]] > self.threshold[nodes]
            nodes = children[2 * nodes + goes_right]
        sums: NDArray[float64] = self.value[nodes].sum(axis=1)
        return sums

    def to_arrays(self) -> dict[str, NDArray[Any]]:
        """The arrays that ``from_arrays`` takes besides the record of ``to_json``."""
        return {name: getattr(self, name) for name in _ARRAYS}

    def to_json(self) -> dict[str, Any]:
        """The other fields as strict JSON."""
        return {"schema": SCHEMA, "features": self.features, "baseline": self.baseline, "depth": self.depth}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, NDArray[Any]], record: Mapping[str, Any]) -> BoostedTrees:
        """Stored trees. Whatever the arrays say, a prediction terminates and reads only inside of them."""
        if record.get("schema") != SCHEMA:
            raise BadInput(f"boosted trees must have the schema {SCHEMA!r}, got {record.get('schema')!r}")
        if missing := [name for name in _ARRAYS if name not in arrays]:
            raise BadInput(f"boosted trees need the arrays {', '.join(_ARRAYS)}, {missing[0]} is missing")
        try:
            features, baseline, depth = int(record["features"]), float(record["baseline"]), int(record["depth"])
        except (KeyError, TypeError, ValueError):
            raise BadInput("boosted trees need the numbers features, baseline and depth in their record") from None
        trees = cls(features, baseline, **_typed(arrays), depth=depth)
        _check(trees)
        return trees


def checked_rows(rows: NDArray[float64], features: int) -> NDArray[float64]:
    """``rows`` as a contiguous matrix of finite numbers with ``features`` columns."""
    import numpy as np

    rows = np.ascontiguousarray(rows, dtype=np.float64)
    if rows.ndim != 2 or rows.shape[1] != features:
        raise BadInput(f"features must be a matrix of {features} columns, got the shape {rows.shape}")
    if not np.isfinite(rows).all():
        raise BadInput("features must be finite numbers, got NaN or an infinity")
    return rows


def fit_boosted_trees(
    rows: NDArray[float64], targets: NDArray[float64], settings: TreeSettings | None = None
) -> BoostedTrees:
    """Trees that predict ``targets``, one for each row. The same rows and settings give the same trees."""
    import numpy as np

    regressor = _scikit_learn().HistGradientBoostingRegressor
    settings = TreeSettings() if settings is None else settings
    rows = checked_rows(rows, np.asarray(rows).shape[-1])
    fitted = [
        regressor(
            loss=loss,
            max_iter=settings.trees,
            max_leaf_nodes=settings.leaves,
            min_samples_leaf=settings.rows_per_leaf,
            learning_rate=settings.learning_rate,
            max_features=settings.features_per_split,
            early_stopping=False,
            random_state=seed,
        ).fit(rows, targets)
        for loss in settings.losses
        for seed in range(settings.members)
    ]
    return exported(fitted)


def exported(fitted: list[Any]) -> BoostedTrees:
    """The mean of scikit-learn's ``HistGradientBoostingRegressor``s, as arrays."""
    import numpy as np

    # scikit-learn exposes no trees publicly; tests compare these with its own predictions.
    grown = [trees[0].nodes for model in fitted for trees in model._predictors]
    sizes = np.array([len(nodes) for nodes in grown], dtype=np.int32)
    roots = np.concatenate([[0], np.cumsum(sizes)[:-1]]).astype(np.int32)
    nodes = np.concatenate(grown)
    offset, here = np.repeat(roots, sizes), np.arange(len(nodes), dtype=np.int32)
    leaf = nodes["is_leaf"].astype(bool)
    children = np.stack([np.where(leaf, here, offset + nodes[side]) for side in ("left", "right")], axis=1)
    return BoostedTrees(
        features=int(fitted[0].n_features_in_),
        baseline=float(np.mean([np.ravel(model._baseline_prediction)[0] for model in fitted])),
        roots=roots,
        feature=np.where(leaf, 0, nodes["feature_idx"]).astype(np.int32),
        threshold=np.where(leaf, np.inf, nodes["num_threshold"]),
        children=children.astype(np.int32),
        value=np.where(leaf, nodes["value"], 0.0) / len(fitted),
        depth=int(nodes["depth"].max()),
    )


def _typed(arrays: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
    import numpy as np

    types = {"threshold": np.float64, "value": np.float64}
    return {name: np.ascontiguousarray(arrays[name], dtype=types.get(name, np.int32)) for name in _ARRAYS}


def _check(trees: BoostedTrees) -> None:
    import numpy as np

    count, here = len(trees.value), np.arange(len(trees.value))[:, None]
    fits = (
        trees.features > 0
        and trees.feature.shape == trees.threshold.shape == trees.value.shape == (count,)
        and trees.children.shape == (count, 2)
        and trees.roots.ndim == 1
        and ((trees.roots >= 0) & (trees.roots < count)).all()
        and ((trees.feature >= 0) & (trees.feature < trees.features)).all()
        and ((trees.children >= here) & (trees.children < count)).all()  # so no row goes in circles
        and np.isfinite(trees.value).all()
        and not np.isnan(trees.threshold).any()
        and 0 <= trees.depth <= count
    )
    if not fits:
        raise BadInput(f"the arrays of boosted trees do not fit each other: {count} nodes, {len(trees.roots)} roots")


def _scikit_learn() -> Any:
    try:
        return import_module("sklearn.ensemble")
    except ImportError as error:
        raise BackendError("fitting a time model needs scikit-learn: pip install 'convwright[predict]'") from error
