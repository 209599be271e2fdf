"""Learn a model of a device's times from observations, with a report of its errors on unseen problems."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from convwright.backends.triton.estimates import estimated
from convwright.backends.triton.kernels import called, kernel
from convwright.core.candidate import Candidate
from convwright.core.device import DeviceFacts
from convwright.core.finding import Measurement
from convwright.core.observation import Observation, Outcome
from convwright.core.problem import ConvProblem
from convwright.errors import BadInput
from convwright.prediction.boosted_trees import TreeSettings
from convwright.prediction.error_report import ErrorReport, error_report
from convwright.prediction.features import Features, algorithm_columns, features, part_columns, vocabulary
from convwright.prediction.learned_times import LearnedTimes
from convwright.prediction.origins import origin_of
from convwright.prediction.power_model import FEWEST_POWERS, PowerModel, fit_power_model
from convwright.prediction.time_model import FOLDS, TimeModel, fit_time_model, unseen_times

if TYPE_CHECKING:
    from numpy import float64, int64
    from numpy.typing import NDArray

# The most rows of one origin, such as a sweep, so that it does not outweigh all networks.
MOST_OF_AN_ORIGIN = 600
FEWEST_ROWS = 100
# With 400 and 127 leaves, as in a model of whole problems, the error is no smaller and predictions take three times as
# long. With squared errors alone the median error of trees is 20.9 % instead of 18.6 (16,000 candidates, H200).
_MANY_ROWS = TreeSettings(
    trees=300, leaves=31, learning_rate=0.08, features_per_split=0.5, losses=("absolute_error",), members=1
)
_FEW_ROWS = TreeSettings(
    trees=120, leaves=12, learning_rate=0.1, features_per_split=0.5, losses=("squared_error",), members=1
)
_MANY = 1000
_DOUBTFUL = "with doubtful times"


@dataclass(frozen=True, slots=True, eq=False)
class Samples:
    """Candidates of one device with their measurements, one row each. A split keeps rows of one origin together."""

    candidates: tuple[Candidate, ...]
    measured_us: NDArray[float64]
    energy_mj: NDArray[float64]
    origins: NDArray[Any]

    def __len__(self) -> int:
        return len(self.candidates)

    def of(self, rows: NDArray[Any]) -> Samples:
        """The samples of some rows."""
        picked = tuple(self.candidates[int(row)] for row in rows)
        return Samples(picked, self.measured_us[rows], self.energy_mj[rows], self.origins[rows])


@dataclass(frozen=True, slots=True, eq=False)
class Learned:
    """A model and its errors."""

    predictor: LearnedTimes
    report: ErrorReport

    @property
    def model(self) -> TimeModel:
        return self.predictor.times


def samples(observations: Iterable[Observation], device: DeviceFacts) -> Samples:
    """One row for each problem and candidate, with its newest time that is not doubtful."""
    import numpy as np

    newest: dict[tuple[str, str], Observation] = {}
    for each in observations:
        if each.device != device.key or each.outcome is not Outcome.MEASURED or each.measurement is None:
            continue
        place = (each.candidate.problem.key, each.candidate.id)
        if _is_sure(each.measurement) and (place not in newest or newest[place].created < each.created):
            newest[place] = each
    rows = [newest[place] for place in sorted(newest)]
    problems: dict[str, Any] = {}
    candidates = tuple(_current(_sharing(each.candidate, problems), device) for each in rows)
    times = [each.measurement for each in rows if each.measurement is not None]
    return Samples(
        candidates,
        np.array([each.device_us.value for each in times], dtype=np.float64),
        np.array([each.energy_mj or np.nan for each in times], dtype=np.float64),
        np.array([origin_of(candidate.problem) for candidate in candidates]),
    )


def _is_sure(measured: Measurement) -> bool:
    return measured.doubt is None and measured.device_us.value > 0


def learn(
    observations: Iterable[Observation] | Samples,
    device: DeviceFacts,
    *,
    versions: Mapping[str, str] | None = None,
    settings: TreeSettings | None = None,
    tried: int = FOLDS,
) -> Learned:
    """A model of the device's times, and of its power if there are enough measurements. ``tried`` of five folds are
    held out for the report and the intervals."""

    if not isinstance(observations, Samples):
        observations = tuple(observations)
    known = observations if isinstance(observations, Samples) else samples(observations, device)
    if len(known) < FEWEST_ROWS:
        others = ":" if isinstance(observations, Samples) else _left_out(observations, device, len(known))
        raise BadInput(
            f"a model of {device.key} needs at least {FEWEST_ROWS} measured candidates, got {len(known)}{others} "
            "measure more with `convwright sample`"
        )
    known = known.of(balanced(known.origins))
    settings = settings_for(len(known)) if settings is None else settings
    groups = groups_of(known)
    names = vocabulary(known.candidates)
    found = features(known.candidates, device, names)
    given, apart = (found.rows, found.physics_us, known.measured_us, groups), algorithm_columns(names)
    terms = part_columns(names)
    unseen = unseen_times(*given, settings=settings, tried=tried, apart=apart, terms=terms)
    times = fit_time_model(
        *given, device=device.key, names=names, versions=versions, settings=settings, unseen_us=unseen, apart=apart,
        terms=terms,
    )  # fmt: skip
    report = error_report(known.candidates, unseen, known.measured_us, groups)
    return Learned(LearnedTimes(times, _power(found, known, unseen, groups, device)), report)


def _left_out(observations: Sequence[Observation], device: DeviceFacts, used: int) -> str:
    """How many observations do not count, and why, as the middle of a sentence."""
    counts: Counter[str] = Counter()
    for each in observations:
        if each.device != device.key:
            counts["from other devices"] += 1
        elif each.outcome is not Outcome.MEASURED or each.measurement is None:
            counts["that were not measured"] += 1
        elif not _is_sure(each.measurement):
            counts[_DOUBTFUL] += 1
    counts["repeats of a candidate"] = len(observations) - used - counts.total()
    why = ", ".join(f"{count:,} {words}" for words, count in counts.items() if count)
    rest = "; stop other work on the device, and" if counts[_DOUBTFUL] else ":"
    return f" from {len(observations):,} observations (left out: {why}){rest}" if why else ":"


def settings_for(rows: int) -> TreeSettings:
    """How trees are grown for this many rows."""
    return _MANY_ROWS if rows >= _MANY else _FEW_ROWS


def balanced(origins: NDArray[Any]) -> NDArray[int64]:
    """Rows in order, at most ``MOST_OF_AN_ORIGIN`` of one if there are others."""
    import numpy as np

    shuffled = np.random.default_rng(0).permutation(len(origins))
    names, counts = np.unique(origins, return_counts=True)
    if len(names) < 2 * FOLDS or counts.max() <= MOST_OF_AN_ORIGIN:
        return np.arange(len(origins))
    kept = [row for name in names for row in shuffled[origins[shuffled] == name][:MOST_OF_AN_ORIGIN]]
    return np.array(sorted(kept), dtype=np.int64)


def groups_of(known: Samples) -> NDArray[Any]:
    """The groups that a split keeps together: origins, or problems if there are too few origins."""
    import numpy as np

    enough = len(np.unique(known.origins)) >= 2 * FOLDS
    return known.origins if enough else np.array([candidate.problem.key for candidate in known.candidates])


def _power(
    found: Features, known: Samples, unseen_us: NDArray[float64], groups: NDArray[Any], device: DeviceFacts
) -> PowerModel | None:
    """A model of power. It uses predicted times where available, since predictions of power will use these."""
    import numpy as np

    rows = np.flatnonzero(np.isfinite(known.energy_mj))
    if len(rows) < FEWEST_POWERS or len(np.unique(groups[rows])) < 2 * FOLDS:
        return None
    measured_us = known.measured_us[rows]
    time_us = np.where(np.isfinite(unseen_us[rows]), unseen_us[rows], measured_us)
    return fit_power_model(found.at(rows), time_us, 1000.0 * known.energy_mj[rows] / measured_us, device.key)


def _sharing(candidate: Candidate, problems: dict[str, Any]) -> Candidate:
    """The candidate, with one shared object for equal problems, whose features are then computed once."""
    problem = problems.setdefault(candidate.problem.key, candidate.problem)
    inner = None if candidate.inner is None else _sharing(candidate.inner, problems)
    return replace(candidate, problem=problem, inner=inner)


def _current(candidate: Candidate, device: DeviceFacts) -> Candidate:
    """The candidate with this version's estimate, whichever version measured it."""
    if candidate.inner is not None:
        return replace(candidate, inner=_current(candidate.inner, device))
    problem = candidate.problem
    if candidate.backend != "triton" or not isinstance(problem, ConvProblem):
        return candidate
    name = called(candidate.algorithm, problem.direction)
    if name is None:
        return candidate
    return estimated(candidate, name, kernel(name).cycles_of(candidate, device), device)


def versions_of(observations: Sequence[Observation]) -> dict[str, str]:
    """The library versions of most observations."""
    named = ("torch", "cudnn", "triton", "driver", "cuda")
    seen: dict[str, dict[str, int]] = {name: {} for name in named}
    for each in observations:
        for name, value in () if each.measurement is None else each.measurement.conditions:
            if name in seen:
                seen[name][value] = seen[name].get(value, 0) + 1
    return {name: max(counts, key=counts.__getitem__) for name, counts in seen.items() if counts}
