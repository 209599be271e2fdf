"""The cheapest assignment that keeps within an amount of memory, or a refusal that names the smallest amount possible.

What counts is the arena, and what PyTorch's operators make besides, as much of it as is alive at once. What they take
while they run, inputs, and the outputs that a caller gets are not counted.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from convwright.engine.planning.assignment import Assignment, Step
from convwright.engine.planning.footprints import Footprints
from convwright.engine.planning.lifetimes import Lifetimes
from convwright.errors import BadInput, Refused
from convwright.graph.choice import ChoiceProblem, JointChoice
from convwright.graph.limited_choice import least, within
from convwright.naming import is_whole

# How often a smaller limit is tried where buffers do not fit as tightly as what is alive.
_TIGHTER = 3
_Made = Callable[[JointChoice, Mapping[str, int]], Assignment]


def checked(memory_budget: object) -> int | None:
    """The budget as Python's own int."""
    if memory_budget is None:
        return None
    if not (is_whole(memory_budget) and memory_budget > 0):  # type: ignore[operator]
        raise BadInput(f"`memory_budget` must be a whole number of bytes above 0, or None, got {memory_budget!r}")
    return int(memory_budget)  # type: ignore[call-overload, no-any-return]


def within_budget(
    cheapest: Assignment,
    budget: int,
    footprints: Footprints,
    turns: Mapping[str, int],
    made: _Made,
    nodes: Mapping[str, tuple[str, ...]],
    posed: Callable[[], ChoiceProblem],
) -> Assignment:
    """``cheapest`` where that fits. Otherwise choices are looked for in two orders of nodes: the one of ``turns``, and
    the best one for the steps of ``cheapest``. The smallest possible amount is what the choice takes that keeps least
    alive in any of these orders. ``nodes`` are those of each step by its name.
    """

    def nbytes(assigned: Assignment) -> int:
        return Lifetimes(assigned, footprints.of_steps(assigned.steps, exact=True)).nbytes

    if nbytes(cheapest) <= budget:
        return cheapest
    problem, fitting = posed(), list[Assignment]()
    orders = [turns, _turns_of(cheapest.steps, turns, nodes)]
    orders = orders[:1] if orders[0] == orders[1] else orders
    for order in orders:
        storage, limit = footprints.storage(order), budget
        for _ in range(_TIGHTER):
            choice = within(problem, storage, limit)
            if choice is None:
                break
            assigned = made(choice, order)
            over = nbytes(assigned) - budget
            if over <= 0:
                fitting.append(assigned)
                break
            limit -= over
    if not fitting:
        frugal = [made(choice, order) for order in orders if (choice := least(problem, footprints.storage(order)))]
        smallest = min(frugal, key=nbytes)
        if nbytes(smallest) > budget:
            raise Refused(
                f"the network does not fit into a memory budget of {budget:,} bytes: the smallest possible is "
                f"{nbytes(smallest):,}"
            )
        fitting.append(smallest)
    return min(fitting, key=lambda assigned: assigned.modelled_us)


def _turns_of(
    steps: tuple[Step, ...], turns: Mapping[str, int], nodes: Mapping[str, tuple[str, ...]]
) -> dict[str, int]:
    """The turns of nodes where steps run in this order; nodes of one step keep the order that they have."""
    place = {node: number for number, step in enumerate(steps) for node in nodes.get(step.name, ())}
    order = sorted(turns, key=lambda node: (place[node], turns[node]))
    return {node: turn for turn, node in enumerate(order)}
