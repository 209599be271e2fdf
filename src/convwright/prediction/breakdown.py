"""The parts of a predicted time: the physical estimate, and the learned correction as factors by groups of features."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from convwright.core.candidate import Candidate
from convwright.core.device import DeviceFacts
from convwright.core.record import Record
from convwright.prediction.features import ALGORITHM, OF_PHYSICS, OF_TILES, PARTS, REWRITE, SETTING, Features, features
from convwright.prediction.problem_features import PROBLEM_FEATURES
from convwright.prediction.time_model import TimeModel

if TYPE_CHECKING:
    from numpy import float64
    from numpy.typing import NDArray

_LAYOUT = (
    "x channels last", "y channels last", "w channels last", "width divisor", "input width divisor",
    "channels divisor", "filters divisor",
)  # fmt: skip
_USUAL = "a usual candidate"


@dataclass(frozen=True, slots=True)
class Breakdown(Record):
    """``parts_us`` are the least times that the device needs for each part of the work; together they make
    ``physics_us``. The predicted time is ``physics_us`` times all ``factors``, which are empty without a model."""

    candidate: str
    physics_us: float
    parts_us: tuple[tuple[str, float], ...]
    factors: tuple[tuple[str, float], ...]
    predicted_us: float

    @property
    def correction(self) -> float:
        """The product of all factors."""
        return self.predicted_us / self.physics_us

    def __str__(self) -> str:
        lines = [self.candidate, "  what the device needs at its peak:"]
        lines += [f"    {name.removesuffix(' µs'):22} {us:10.2f} µs" for name, us in self.parts_us if us]
        lines.append(f"  {'physical estimate':24} {self.physics_us:10.2f} µs")
        if self.factors:
            lines.append("  learned correction, by what it depends on:")
            lines += [f"    {name:22} {factor:10.2f} x" for name, factor in self.factors]
        lines.append(f"  {'predicted':24} {self.predicted_us:10.2f} µs")
        return "\n".join(lines)


def breakdown(
    candidate: Candidate, device: DeviceFacts, model: TimeModel | None, predicted_us: float | None = None
) -> Breakdown:
    """The breakdown of one candidate. Without a model, ``predicted_us`` comes from the data sheet."""
    import numpy as np

    found = features([candidate], device, () if model is None else model.features)
    physics_us = float(found.physics_us[0])
    parts = tuple(zip(PARTS, found.parts[0].tolist(), strict=True))
    if model is None:
        us = physics_us if predicted_us is None else predicted_us
        return Breakdown(candidate.id, physics_us, parts, (("data sheet's factor", us / physics_us),), us)
    names, rows = _steps(found, model)
    times = model.correction.times(rows, np.full(len(rows), physics_us))
    ratios = [times[0] / physics_us, *(times[1:] / times[:-1])]
    factors = tuple((name, float(ratio)) for name, ratio in zip(names, ratios, strict=True))
    return Breakdown(candidate.id, physics_us, parts, factors, float(times[-1]))


def _steps(found: Features, model: TimeModel) -> tuple[list[str], NDArray[float64]]:
    """Change the features from the mean of all learned rows to this row, one group after the other."""
    import numpy as np

    row, rows, names = model.domain.centre.copy(), [model.domain.centre.copy()], [_USUAL]
    for name, columns in _groups(model.features).items():
        row = row.copy()
        row[columns] = found.rows[0, columns]
        rows.append(row)
        names.append(name)
    return names, np.array(rows)


def _groups(names: Sequence[str]) -> dict[str, list[int]]:
    groups: dict[str, list[int]] = {
        each: []
        for each in ("algorithm", "rewrites", "settings", "amount of work", "tiles and waves", "layout and divisors",
                     "sizes", "memory and launches")
    }  # fmt: skip
    for index, name in enumerate(names):
        groups[_group_of(name)].append(index)
    return {name: columns for name, columns in groups.items() if columns}


def _group_of(name: str) -> str:
    for start, group in ((ALGORITHM, "algorithm"), (REWRITE, "rewrites"), (SETTING, "settings")):
        if name.startswith(start):
            return group
    if name in OF_PHYSICS:
        return "amount of work"
    if name in OF_TILES:
        return "tiles and waves"
    if name in _LAYOUT:
        return "layout and divisors"
    return "sizes" if name in PROBLEM_FEATURES else "memory and launches"
