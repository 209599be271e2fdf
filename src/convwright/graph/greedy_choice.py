"""A choice node by node, for comparison with the joint choice."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import fsum

from convwright.graph.choice import (
    ChoiceProblem,
    Copy,
    JointChoice,
    Option,
    Place,
    check_choice,
    copies_into,
    nothing_covers,
    option_key,
    plan_of,
)


def greedy(problem: ChoiceProblem) -> JointChoice:
    """Node by node in the order of the problem, take the way that is cheapest including the copies that it needs.

    A way is taken only when all its inputs exist. At a dead end, the latest way that caused it is replaced by its next
    best.
    """
    check_choice(problem)
    walk = _Walk(problem)
    while not walk.ended():
        walk.step()
    return plan_of(problem, [step.option for step in walk.steps])


@dataclass(slots=True)
class _Step:
    option: Option
    others: list[Option]  # alternatives, the next best last
    blamed: set[int]  # earlier steps that excluded other alternatives


class _Walk:
    """A plan that grows one way at a time, and can go back to the step that caused a dead end."""

    def __init__(self, problem: ChoiceProblem) -> None:
        self._problem = problem
        self._into = copies_into(problem)
        self._covering: dict[str, list[Option]] = {node: [] for node in problem.nodes}
        self._writing: dict[Place, list[Option]] = {}
        for option in sorted(problem.options, key=option_key):
            for node in sorted(option.covers):
                self._covering[node].append(option)
            for place in option.writes:
                self._writing.setdefault(place, []).append(option)
        self._start([])

    def _start(self, steps: Sequence[_Step]) -> None:
        self.steps: list[_Step] = []
        self._covered: dict[str, int] = {}  # the step that covers each node
        self._there = set(self._problem.given)
        self._copied: set[Place] = set()
        for step in steps:
            self._take(step)

    def ended(self) -> bool:
        """Whether all nodes are covered and all wanted places exist. Goes back if that has become impossible."""
        if len(self._covered) < len(self._covering):
            return False
        for place in self._problem.wanted:
            if self._supply(place) is None:
                self._go_back(self._to_blame(place))
                return False
        return True

    def step(self) -> None:
        """Cover the next node."""
        node = next((node for node in self._problem.nodes if node not in self._covered), None)
        if node is None:
            return
        possible: list[tuple[float, Option]] = []
        blamed: set[int] = set()
        for option in self._covering[node]:
            reasons = self._reasons_against(option)
            if reasons:  # one is enough; the earliest goes back furthest
                blamed |= min(reasons, key=lambda steps: sorted(steps, reverse=True))
            else:
                copies = [copy for place in set(option.reads) for copy in self._supply(place) or ()]
                possible.append((fsum((option.cost, *(copy.cost for copy in copies))), option))
        if possible:
            others = [option for _, option in sorted(possible, key=lambda each: each[0])][::-1]
            self._take(_Step(others.pop(), others, blamed))
        else:
            self._go_back(blamed)

    def _take(self, step: _Step) -> None:
        for place in step.option.reads:
            if self._supply(place):
                self._copied.add(place)
        self._there.update(step.option.writes)
        self._covered.update(dict.fromkeys(step.option.covers, len(self.steps)))
        self.steps.append(step)

    def _supply(self, place: Place) -> tuple[Copy, ...] | None:
        """The copy that supplies a place, empty if it exists already; None if it cannot be supplied."""
        if place in self._there or place in self._copied:
            return ()
        copies = self._into.get(place, ())
        return next(((copy,) for copy in copies if (copy.value, copy.source) in self._there), None)

    def _reasons_against(self, option: Option) -> list[set[int]]:
        """Each reason why an option cannot be taken, as the set of steps that caused it."""
        reasons = [{self._covered[node]} for node in option.covers if node in self._covered]
        return reasons + [self._to_blame(place) for place in set(option.reads) if self._supply(place) is None]

    def _to_blame(self, place: Place) -> set[int]:
        """The steps that were taken instead of those that could supply a place.

        Ways for nodes that are not covered yet do not count: they come later in any case.
        """
        sources = (place, *((copy.value, copy.source) for copy in self._into.get(place, ())))
        writers = [option for source in sources for option in self._writing.get(source, ())]
        taken = ([self._covered[node] for node in option.covers if node in self._covered] for option in writers)
        return {min(steps) for steps in taken if steps}

    def _go_back(self, blamed: set[int]) -> None:
        """Take the next best way at the latest of these steps; if it has none, go back further."""
        while blamed:
            latest = max(blamed)
            step = self.steps[latest]
            self._start(self.steps[:latest])
            rest = step.blamed | (blamed - {latest})
            if step.others:
                self._take(_Step(step.others.pop(), step.others, rest))
                return
            blamed = rest
        raise nothing_covers(self._problem)
