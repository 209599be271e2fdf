"""Intervals that hold a given share of measured times, by split-conformal prediction on the logarithm of time.

An interval is a factor around a predicted time: the finite-sample quantile of errors on rows that the model had not
seen. Rows with predictions between the same two ``edges`` share a factor, since short times scatter more.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import ceil, inf
from typing import TYPE_CHECKING, Any

from convwright.errors import BadInput

if TYPE_CHECKING:
    from numpy import float64, int64
    from numpy.typing import NDArray

# The share of times that intervals should hold.
COVERAGE = 0.9
# The fewest errors in a bucket: with fewer, its quantile is mostly chance.
_FEWEST = 50
# Short times scatter more by noise; long ones are rare. Equally full buckets would mix the long ones.
_EDGES_US = (5.0, 10.0, 20.0, 50.0, 100.0, 300.0, 1e3, 3e3, 1e4, 3e4)


@dataclass(frozen=True, slots=True)
class ConformalIntervals:
    """``log_factors[i]`` is for predictions from ``edges_us[i - 1]`` to ``edges_us[i]``; the first
    has no lower edge, the last no upper one."""

    coverage: float
    edges_us: tuple[float, ...]
    log_factors: tuple[float, ...]

    def around(self, predicted_us: NDArray[float64]) -> tuple[NDArray[float64], NDArray[float64]]:
        """The lower and upper bounds of the time for each prediction."""
        import numpy as np

        factors = np.exp(np.array(self.log_factors))[_bucket(predicted_us, self.edges_us)]
        return predicted_us / factors, predicted_us * factors

    def to_json(self) -> dict[str, Any]:
        """Strict JSON; None is a factor without bound."""
        factors = [None if each == inf else each for each in self.log_factors]
        return {"coverage": self.coverage, "edges_us": list(self.edges_us), "log_factors": factors}

    @classmethod
    def from_json(cls, record: Mapping[str, Any]) -> ConformalIntervals:
        try:
            edges = tuple(float(each) for each in record["edges_us"])
            factors = tuple(inf if each is None else float(each) for each in record["log_factors"])
            coverage = float(record["coverage"])
        except (KeyError, TypeError, ValueError):
            raise BadInput("intervals need coverage, edges_us and log_factors in their record") from None
        if len(factors) != len(edges) + 1 or list(edges) != sorted(edges) or not all(each >= 0 for each in factors):
            raise BadInput(
                f"intervals need rising edges and one factor more than edges, got {len(edges)} edges and "
                f"{len(factors)} factors"
            )
        return cls(coverage, edges, factors)


def calibrate(
    predicted_us: NDArray[float64], measured_us: NDArray[float64], *, coverage: float = COVERAGE
) -> ConformalIntervals:
    """Intervals from predictions for rows that the predicting model had not seen.

    Too few rows give intervals without bounds: 90 % coverage needs nine.
    """
    import numpy as np

    if not 0 < coverage < 1:
        raise BadInput(f"coverage must lie between 0 and 1, got {coverage!r}")
    errors = np.abs(np.log(measured_us / predicted_us))
    edges = _full_enough(predicted_us)
    bucket = _bucket(predicted_us, edges)
    factors = tuple(conformal_quantile(errors[bucket == each], coverage) for each in range(len(edges) + 1))
    return ConformalIntervals(coverage, edges, factors)


def _full_enough(predicted_us: NDArray[float64]) -> tuple[float, ...]:
    """Edges with enough rows in every bucket."""
    import numpy as np

    ordered, edges, begun = np.sort(predicted_us), list[float](), 0
    for edge in _EDGES_US:
        end = int(np.searchsorted(ordered, edge))
        if end - begun >= _FEWEST and len(ordered) - end >= _FEWEST:
            edges.append(edge)
            begun = end
    return tuple(edges)


def conformal_quantile(scores: NDArray[float64] | Sequence[float], coverage: float) -> float:
    """The score that one more row exceeds with a probability of at most ``1 - coverage``.

    >>> conformal_quantile([3.0, 1.0, 2.0], 0.5), conformal_quantile([3.0, 1.0, 2.0], 0.9)
    (2.0, inf)
    """
    # The new score has each of the n + 1 ranks with equal probability, so ranks count among n + 1 scores.
    rank = ceil((len(scores) + 1) * coverage - 1e-9)
    return float(sorted(scores)[max(rank, 1) - 1]) if rank <= len(scores) else inf


def _bucket(predicted_us: NDArray[float64], edges: Sequence[float]) -> NDArray[int64]:
    import numpy as np

    return np.searchsorted(np.array(edges, dtype=np.float64), predicted_us, side="right")
