"""Split rows into folds that keep each group, such as one problem, together."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from numpy import int64
    from numpy.typing import NDArray


def fold_of(groups: NDArray[Any], folds: int, *, seed: int = 0) -> NDArray[int64]:
    """The fold of each row, from 0. The numbers of groups per fold differ by at most one.

    >>> import numpy as np
    >>> fold = fold_of(np.array(["a", "b", "a", "c"]), 3)
    >>> bool(fold[0] == fold[2]), sorted(set(fold.tolist()))
    (True, [0, 1, 2])
    """
    import numpy as np

    known, of = np.unique(groups, return_inverse=True)
    shuffled = np.random.default_rng(seed).permutation(len(known))
    fold: NDArray[int64] = (shuffled % folds)[of.ravel()]
    return fold
