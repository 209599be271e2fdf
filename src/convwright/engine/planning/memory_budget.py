"""The cheapest assignment within a memory budget, or a refusal that names the smallest possible budget.

The budget counts the arena and the peak of tensors that PyTorch's operators allocate. It does not count memory that
those operators use internally, inputs, or outputs that the caller keeps.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from convwright.engine.planning.assignment import Assignment, Step
from convwright.engine.planning.footprints import Footprints
from convwright.engine.planning.lifetimes import Lifetimes
from convwright.errors import BadInput, Refused
from convwright.graph.choice import ChoiceProblem, JointChoice
from convwright.graph.limited_choice import least, need, within
from convwright.naming import is_whole

# How often a smaller limit is tried if buffers do not pack as tightly as the live bytes.
_TIGHTER = 3
_Made = Callable[[JointChoice, Mapping[str, int]], Assignment]


def checked(memory_budget: object) -> int | None:
    """The budget as a Python int."""
    if memory_budget is None:
        return None
    if not (is_whole(memory_budget) and memory_budget > 0):  # type: ignore[operator]
        raise BadInput(f"`memory_budget` must be a whole number of bytes above 0, or None, got {memory_budget!r}")
    return int(memory_budget)  # type: ignore[call-overload, no-any-return]


class Budget:
    """Assignments within a budget that ``cheapest`` exceeds. Two orders of nodes are tried: ``turns``, and the best
    order for the steps of ``cheapest``. ``nodes`` maps the name of each step to its nodes."""

    def __init__(
        self, budget: int, cheapest: Assignment, problem: ChoiceProblem, footprints: Footprints,
        turns: Mapping[str, int], nodes: Mapping[str, tuple[str, ...]], made: _Made,
    ) -> None:  # fmt: skip
        self._budget, self._problem, self._footprints, self._made = budget, problem, footprints, made
        orders = [turns, _turns_of(cheapest.steps, turns, nodes)]
        self._orders = orders[:1] if orders[0] == orders[1] else orders

    def cheapest(self) -> Assignment | None:
        """The cheapest assignment within the budget, or None."""
        fitting = [assigned for order in self._orders if (assigned := self._within(order))]
        return min(fitting, key=lambda assigned: assigned.modelled_us, default=None)

    def smallest(self) -> Assignment:
        """The cheapest assignment of least peak memory, or a refusal that names this peak."""
        storage = self._footprints.storage
        frugal = [
            (self._made(choice, order), choice, order) for order in self._orders
            if (choice := least(self._problem, storage(order))) is not None
        ]  # fmt: skip
        smallest, choice, order = min(frugal, key=lambda each: nbytes(each[0], self._footprints))
        if (needed := nbytes(smallest, self._footprints)) > self._budget:
            raise Refused(
                f"the network does not fit into a memory budget of {self._budget:,} bytes: the smallest possible is "
                f"{needed:,}"
            )
        cheaper = within(self._problem, storage(order), need(choice, self._problem, storage(order)).nbytes)
        tight = None if cheaper is None else self._made(cheaper, order)
        return tight if tight is not None and nbytes(tight, self._footprints) <= self._budget else smallest

    def _within(self, order: Mapping[str, int]) -> Assignment | None:
        storage, limit = self._footprints.storage(order), self._budget
        for _ in range(_TIGHTER):
            choice = within(self._problem, storage, limit)
            if choice is None:
                return None
            assigned = self._made(choice, order)
            over = nbytes(assigned, self._footprints) - self._budget
            if over <= 0:
                return assigned
            limit -= over
        return None


def nbytes(assigned: Assignment, footprints: Footprints) -> int:
    """The bytes of an assignment that count."""
    return Lifetimes(assigned, footprints.of_steps(assigned.steps, exact=True)).nbytes


def _turns_of(
    steps: tuple[Step, ...], turns: Mapping[str, int], nodes: Mapping[str, tuple[str, ...]]
) -> dict[str, int]:
    """The turns of nodes if steps run in this order. Nodes of one step keep their order."""
    place = {node: number for number, step in enumerate(steps) for node in nodes.get(step.name, ())}
    order = sorted(turns, key=lambda node: (place[node], turns[node]))
    return {node: turn for turn, node in enumerate(order)}
