"""Times of ways inside a network: timed alone, then corrected by measurements in the network.

In a network a step's weights and code are not in the nearest caches. The extra time is fitted to the steps that were
timed there: a constant for each step, and a rate for each byte of a weight.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import inf
from typing import TypeVar

from convwright.core.finding import Interval
from convwright.engine.planning.assignment import Step
from convwright.engine.planning.ways import CopyWay, Way
from convwright.graph.operations import NOTHING_RUNS, Operation

_Key = tuple[Operation, str | None]
_Timed = TypeVar("_Timed", Way, CopyWay)


class Costs:
    """Times of ways. ``step_us`` and ``byte_us`` are the extra cost of a step inside the network: 0 until given or
    learned."""

    def __init__(self, step_us: float = 0.0, byte_us: float = 0.0) -> None:
        self.step_us, self.byte_us = step_us, byte_us
        self._alone: dict[_Key, float] = {}
        self._in_place: dict[_Key, float] = {}

    def learn(self, steps: Sequence[Step], times_us: Sequence[float]) -> None:
        """Learn from the times of steps in the network. Equal steps are averaged."""
        together: dict[_Key, list[float]] = {}
        for step, time_us in zip(steps, times_us, strict=True):
            together.setdefault(_key_of_step(step), []).append(time_us)
        self._in_place |= {key: sum(times) / len(times) for key, times in together.items()}
        self._fit()

    def _fit(self) -> None:
        """Fit the extra time by least squares, per step and per byte."""
        points = [
            (float(_weight_bytes(key[0])), time_us - self._alone[key])
            for key, time_us in self._in_place.items()
            if key in self._alone and not isinstance(key[0], NOTHING_RUNS)
        ]
        if not points:
            return
        mean_x, mean_y = (sum(each) / len(points) for each in zip(*points, strict=True))
        spread = sum((x - mean_x) ** 2 for x, _ in points)
        slope = sum((x - mean_x) * (y - mean_y) for x, y in points) / spread if spread else 0.0
        self.byte_us = max(slope, 0.0)
        self.step_us = max(mean_y - self.byte_us * mean_x, 0.0)

    def corrected(self, way: _Timed) -> _Timed:
        """A way with its time inside the network."""
        operation = way.operation if isinstance(way, Way) else way.problem
        key = operation, None if way.candidate is None else way.candidate.id
        self._alone.setdefault(key, way.time_us.value)
        if isinstance(operation, NOTHING_RUNS):
            return way
        known, alone = self._in_place.get(key), way.time_us
        if known is not None:  # what was not measured alone cannot be compared with other ways of the layer
            return replace(way, time_us=Interval(known, known, known if alone.high < inf else inf))
        return replace(way, time_us=alone.plus(_exactly(self.step_us + self.byte_us * _weight_bytes(operation))))


def _exactly(time_us: float) -> Interval:
    return Interval(time_us, time_us, time_us)


def _key_of_step(step: Step) -> _Key:
    return step.operation, None if step.candidate is None else step.candidate.id


def _weight_bytes(operation: Operation) -> int:
    spec = operation.operands.get("w")
    return 0 if spec is None else spec.nbytes
