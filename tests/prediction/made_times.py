"""Made-up problems whose times are a known law with known scatter."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy import float64
from numpy.typing import NDArray

NAMES = ("log size", "log channels", "waves")


class Times(NamedTuple):
    features: NDArray[float64]
    physics_us: NDArray[float64]
    measured_us: NDArray[float64]


def times(rows: int, *, seed: int = 0, scatter: float = 0.05) -> Times:
    """Times whose ratio to physics depends on a feature, with a jump, and scatters by a log-normal factor."""
    random = np.random.default_rng(seed)
    features = random.uniform(0, 3, (rows, len(NAMES)))
    physics = np.exp(features[:, 0] + features[:, 1])
    ratio = np.where(features[:, 2] > 1.5, 0.8, 0.2) + 0.1 * features[:, 0] + scatter * random.standard_normal(rows)
    return Times(features, physics, physics * np.exp(ratio))
