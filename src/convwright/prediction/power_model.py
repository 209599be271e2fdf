"""The power of a device that runs kernels back to back, from the load on its parts.

Measuring energy takes seconds, so only a few dozen candidates have it: enough for a straight line. Power rises more
slowly than a load, and faster than its logarithm, so the line has the square roots and the logarithms of loads.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields
from itertools import chain
from math import exp
from typing import TYPE_CHECKING, Any

from convwright.core.finding import Interval
from convwright.core.record import Record
from convwright.errors import BadInput
from convwright.prediction.features import PARTS, Features
from convwright.prediction.intervals import conformal_quantile

if TYPE_CHECKING:
    from numpy import float64
    from numpy.typing import NDArray

SCHEMA, _FORMER = "convwright power model 2", "convwright power model 1"
FEWEST_POWERS = 30
# The inputs of the line: shares of the time that the device needs at its peak for products and for memory, the time
# itself, the waves of tiles, and whether tensor cores are used.
_LOADS, _LEAST_SHARE, _MOST_WAVES = 7, 1e-3, 6.0
_OF_MEMORY = ("operands µs", "scratch µs", "copies µs")
# The penalty of squared weights, in units of the rows' variance.
_RIDGE = 3.0
# The share of powers within the bounds.
_COVERED = 0.9
_LINES = ("centre", "deviation", "weights")
_LARGEST = 1e12  # limit for values read from a record


@dataclass(frozen=True, slots=True)
class PowerModel(Record):
    """A prediction is ``mean_w`` plus ``weights`` times the loads, minus ``centre`` and in units of ``deviation``. It
    stays within the powers seen, from ``least_w`` to ``most_w``. Nine of ten errors are at most a ``factor``.
    ``median`` is the median of |predicted / measured - 1|, each of the ``rows`` predicted by all others."""

    device: str
    mean_w: float
    centre: tuple[float, ...]
    deviation: tuple[float, ...]
    weights: tuple[float, ...]
    least_w: float
    most_w: float
    factor: float
    median: float
    rows: int

    def watts(self, found: Features, time_us: NDArray[float64]) -> NDArray[float64]:
        """The power of each candidate, one call of which takes ``time_us``."""
        import numpy as np

        line = (_loads(found, time_us) - np.array(self.centre)) / np.array(self.deviation) @ np.array(self.weights)
        watts: NDArray[float64] = np.clip(self.mean_w + line, self.least_w, self.most_w)
        return watts

    def around(self, watts: float, *, in_domain: bool) -> Interval:
        """The bounds of a prediction. Outside the domain they also include all powers seen."""
        low, high = watts / self.factor, watts * self.factor
        if not in_domain:
            low, high = min(low, self.least_w), max(high, self.most_w)
        return Interval(watts, low, high)

    def to_json(self) -> dict[str, Any]:
        return {"schema": SCHEMA, **asdict(self)}

    @classmethod
    def from_json(cls, record: Any) -> PowerModel:
        """A stored model. Whatever the record says, predictions are numbers."""
        names = [each.name for each in fields(cls)]
        if isinstance(record, dict) and record.get("schema") == _FORMER:
            raise BadInput("it was learned by another version: learn it again with `convwright learn`")
        if not isinstance(record, dict) or record.get("schema") != SCHEMA or set(record) != {"schema", *names}:
            raise BadInput(f"a model of power must have the schema {SCHEMA!r}, with {', '.join(names)}")
        given: dict[str, Any] = {name: record[name] for name in names}
        lines = [given[name] for name in _LINES]
        if not all(isinstance(line, list | tuple) and len(line) == _LOADS for line in lines):
            raise BadInput(f"a model of power needs lists of {_LOADS} numbers: {', '.join(_LINES)}")
        numbers = [given[name] for name in names if name not in ("device", *_LINES)]
        if not (isinstance(given["device"], str) and all(map(_is_finite, chain(numbers, *lines)))):
            raise BadInput("a model of power needs finite numbers, and the key of a device")
        made = cls(**given | {name: tuple(given[name]) for name in _LINES})
        if not (min(made.deviation) > 0 and 0 < made.least_w <= made.most_w and made.factor >= 1):
            raise BadInput("a model of power needs deviations and powers above 0, and a factor of at least 1")
        return made


def _is_finite(value: object) -> bool:
    return isinstance(value, int | float) and abs(value) < _LARGEST


def fit_power_model(found: Features, time_us: NDArray[float64], watts: NDArray[float64], device: str) -> PowerModel:
    """The line through measured powers of candidates, one call of which takes ``time_us``."""
    import numpy as np

    loads = _loads(found, time_us)
    centre, deviation, mean_w = loads.mean(axis=0), np.maximum(loads.std(axis=0), 1e-9), float(watts.mean())
    standard = (loads - centre) / deviation
    solver = np.linalg.solve(standard.T @ standard + _RIDGE * np.eye(_LOADS), standard.T)
    weights, least_w, most_w = solver @ (watts - mean_w), float(watts.min()), float(watts.max())
    # Leave-one-out predictions follow from each row's influence on its own prediction.
    influence = np.einsum("ij,ji->i", standard, solver) + 1 / len(watts)
    alone = np.clip(watts - (watts - mean_w - standard @ weights) / (1 - influence), least_w, most_w)
    factor = exp(conformal_quantile(np.abs(np.log(alone / watts)), _COVERED))
    median = float(np.median(np.abs(alone / watts - 1)))
    lines = [tuple(each.tolist()) for each in (centre, deviation, weights)]
    return PowerModel(device, mean_w, lines[0], lines[1], lines[2], least_w, most_w, factor, median, len(watts))


def _loads(found: Features, time_us: NDArray[float64]) -> NDArray[float64]:
    import numpy as np

    def column(name: str) -> NDArray[float64]:
        values: NDArray[float64] = found.rows[:, found.names.index(name)]
        return values

    products = found.parts[:, PARTS.index("products µs")] / time_us
    memory = found.parts[:, [PARTS.index(part) for part in _OF_MEMORY]].sum(axis=1) / time_us
    shares = (change(share) for share in (products, memory) for change in (np.sqrt, _log_share))
    waves = np.clip(column("log waves of 32"), -_MOST_WAVES, _MOST_WAVES)
    return np.column_stack([*shares, np.log(time_us), waves, column("on tensor cores")])


def _log_share(share: NDArray[float64]) -> NDArray[float64]:
    import numpy as np

    return np.log(np.maximum(share, _LEAST_SHARE))
