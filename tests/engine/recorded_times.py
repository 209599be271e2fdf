"""Times that were written down, as a source for plans."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from convwright.core.device import DeviceFacts
from convwright.core.finding import Interval
from convwright.core.kinds.problem import Problem
from convwright.engine.planning.times import TimedCandidate, TimeSource
from convwright.graph.operations import Foreign
from convwright.tuning.trials.search_input import Progress

Table = Mapping[Problem, tuple[TimedCandidate, ...]]


class RecordedTimes:
    """What a table says, on whatever device."""

    def __init__(self, device: DeviceFacts, table: Table) -> None:
        self.device, self._table = device, table

    def of_problems(
        self, problems: Sequence[Problem], progress: Progress
    ) -> Iterator[tuple[Problem, tuple[TimedCandidate, ...]]]:
        for problem in problems:
            yield problem, self._table[problem]

    def of_operator(self, operation: Foreign) -> Interval | None:
        return None


class Recorder:
    """Asks another source, and writes down what it says in ``table``."""

    def __init__(self, source: TimeSource) -> None:
        self.device, self._source = source.device, source
        self.table: dict[Problem, tuple[TimedCandidate, ...]] = {}

    def of_problems(
        self, problems: Sequence[Problem], progress: Progress
    ) -> Iterator[tuple[Problem, tuple[TimedCandidate, ...]]]:
        for problem, found in self._source.of_problems(problems, progress):
            self.table[problem] = found
            yield problem, found

    def of_operator(self, operation: Foreign) -> Interval | None:
        return self._source.of_operator(operation)
