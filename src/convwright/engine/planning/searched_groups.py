"""Groups of a network, and the ways that searches have found for them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from convwright import flags
from convwright.engine.planning.ways import Possible, Timed, Way, possible
from convwright.graph.graph import Graph
from convwright.graph.groups import Group
from convwright.graph.operations import NO_PROBLEM, Operation
from convwright.graph.states import States
from convwright.tuning.trials.search_input import Progress


class SearchedGroups:
    """The groups that may use TF32, or those that may not; if ``tf32`` is None, PyTorch's flags decide."""

    def __init__(self, timed: Timed, tf32: bool | None) -> None:
        self.timed, self.tf32, self.possible = timed, tf32, tuple[Possible, ...]()

    def add(self, new: Iterable[Group], graph: Graph, states: States) -> None:
        self.possible += possible(graph, new, states, on_gpu=self.timed.on_gpu)

    def search_first(self, progress: Progress) -> None:
        """Search for ways that are like no other, and for ways that are like one that nothing computes."""
        self.search([each.operation for each in self.possible if each.like is None], progress)
        alone = [each for each in self.possible if each.like is not None and not self.timed.candidates(each.like)]
        self.search([each.operation for each in alone], progress)

    def search(self, operations: Iterable[Operation], progress: Progress) -> None:
        with self._flags():
            self.timed.search((each for each in operations if not isinstance(each, NO_PROBLEM)), progress)

    def ways(self) -> list[Way]:
        with self._flags():
            return [way for each in self.possible for way in each.ways(self.timed)]

    def leave_unknown(self) -> None:
        """Drop ways that were not searched for."""
        self.possible = tuple(each for each in self.possible if self.timed.knows(each.operation))

    @contextmanager
    def _flags(self) -> Iterator[None]:
        if self.tf32 is None:
            yield
            return
        with flags.tf32(self.tf32), flags.matmul_tf32(self.tf32):
            yield
