"""The errors of a model on unseen problems, by latency, kind and backend, and how often intervals held the measured
time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from convwright.core.candidate import Candidate
from convwright.core.kinds.problem import Problem
from convwright.core.problem import ConvProblem
from convwright.core.record import Record
from convwright.prediction.folds import fold_of
from convwright.prediction.intervals import COVERAGE, calibrate

if TYPE_CHECKING:
    from numpy import bool_, float64
    from numpy.typing import NDArray

# The lower limits of the latency buckets, in µs.
LATENCIES_US = (0.0, 5.0, 10.0, 20.0, 50.0, 100.0, 300.0, 1000.0, 10_000.0)
_ALL = "all"
# The relative error within which a prediction counts as close.
CLOSE = 0.1


@dataclass(frozen=True, slots=True)
class ErrorRow(Record):
    """For ``rows`` predictions of ``problems``: mean and median of |predicted / measured - 1|, the shares that were
    ``close`` and ``covered`` by their interval, and the interval's typical factor."""

    label: str
    rows: int
    problems: int
    mape: float
    median: float
    close: float
    covered: float
    factor: float


@dataclass(frozen=True, slots=True)
class ErrorReport(Record):
    """The rows of the report. ``coverage`` is the share that intervals should hold."""

    coverage: float
    rows: tuple[ErrorRow, ...]

    def __str__(self) -> str:
        said = f"{'':28} {'rows':>6} {'problems':>8} {'MAPE':>7} {'median':>7} {'in 10 %':>8} {'covered':>8} {'±':>6}\n"
        return said + "\n".join(
            f"{row.label:28} {row.rows:6,} {row.problems:8,} {row.mape:7.1%} {row.median:7.1%} {row.close:8.0%} "
            f"{row.covered:8.0%} {row.factor - 1:6.0%}"
            for row in self.rows
        )


def error_report(
    candidates: Sequence[Candidate],
    unseen_us: NDArray[float64],
    measured_us: NDArray[float64],
    groups: NDArray[Any],
) -> ErrorReport:
    """The errors of ``unseen_us``, predictions by models that had not seen the problems. Rows with NaN are left out.

    Intervals are calibrated on one half of the groups and tested on the other, and the reverse.
    """
    import numpy as np

    known = np.isfinite(unseen_us)
    candidates = [candidate for candidate, is_known in zip(candidates, known, strict=True) if is_known]
    predicted, measured, groups = unseen_us[known], measured_us[known], groups[known]
    low, high = _bounds(predicted, measured, groups)
    problems = np.array([candidate.problem.key for candidate in candidates])

    def row(label: str, where: NDArray[bool_]) -> ErrorRow:
        off = np.abs(predicted[where] / measured[where] - 1)
        held = (low[where] <= measured[where]) & (measured[where] <= high[where])
        return ErrorRow(
            label, int(where.sum()), len(np.unique(problems[where])), float(off.mean()), float(np.median(off)),
            float((off <= CLOSE).mean()), float(held.mean()), float(np.median(high[where] / predicted[where])),
        )  # fmt: skip

    parts: dict[str, NDArray[bool_]] = {_ALL: np.ones(len(measured), dtype=np.bool_)}
    for first, end in zip(LATENCIES_US, (*LATENCIES_US[1:], np.inf), strict=True):
        parts[f"{first:g} to {end:g} µs"] = (measured >= first) & (measured < end)
    parts |= _by([kind_of(candidate.problem) for candidate in candidates])
    parts |= _by([candidate.leaf.backend for candidate in candidates])
    parts |= _by(["rewritten" if candidate.inner is not None else "" for candidate in candidates])
    return ErrorReport(COVERAGE, tuple(row(label, where) for label, where in parts.items() if where.any()))


def kind_of(problem: Problem) -> str:
    """The kind of a problem; for a convolution with its direction.

    >>> kind_of(ConvProblem.parse("ic8ih9oc8kh3 dir:backward_data"))
    'conv backward_data'
    """
    return f"conv {problem.direction}" if isinstance(problem, ConvProblem) else problem.kind


def _by(labels: Sequence[str]) -> Mapping[str, NDArray[bool_]]:
    import numpy as np

    column = np.array(labels)
    return {label: column == label for label in dict.fromkeys(labels) if label}


def _bounds(
    predicted: NDArray[float64], measured: NDArray[float64], groups: NDArray[Any]
) -> tuple[NDArray[float64], NDArray[float64]]:
    import numpy as np

    low, high, half = np.empty(len(predicted)), np.empty(len(predicted)), fold_of(groups, 2, seed=1)
    for each in (0, 1):
        tried = half == each
        intervals = calibrate(predicted[~tried], measured[~tried])
        low[tried], high[tried] = intervals.around(predicted[tried])
    return low, high
