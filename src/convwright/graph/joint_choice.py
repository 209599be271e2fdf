"""Choose one way for each node of a network jointly: costs of ways and copies → the cheapest plan."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from graphlib import CycleError, TopologicalSorter

from convwright.graph.choice import (
    ChoiceProblem,
    Copy,
    JointChoice,
    Option,
    Place,
    State,
    check_choice,
    copies_into,
    nothing_covers,
    option_key,
    plan_of,
)
from convwright.graph.integer_program import IntegerProgram

_TIES_US = 1e-4  # all names together add a tenth of a nanosecond to the costs


def solve(problem: ChoiceProblem) -> JointChoice:
    """The cheapest plan: it covers each node once, and each read or wanted place is written, given or copied.

    >>> ways = (
    ...     Option("slow", frozenset({"conv"}), (("x", "nchw"),), (("y", "nchw"),), 9.0),
    ...     Option("fast", frozenset({"conv"}), (("x", "nhwc"),), (("y", "nchw"),), 4.0),
    ... )
    >>> copies = (Copy("x", "nchw", "nhwc", 2.0),)
    >>> found = solve(ChoiceProblem(("conv",), ways, copies, (("x", "nchw"),), (("y", "nchw"),)))
    >>> [way.name for way in found.options], found.copies == copies, found.cost
    (['fast'], True, 6.0)
    """
    found = _solved(problem)
    if found is None:
        raise nothing_covers(problem)
    return found


def uniform(problem: ChoiceProblem) -> JointChoice | None:
    """The cheapest plan in which all values that know several states lie in one and the same; None where none does.

    Only what is given is copied into that state, and only what is wanted out of it. What is given and does not know
    that state, such as packed weights, lies as it likes.
    """
    known: dict[str, set[State]] = {}
    for value, state in _places(problem):
        known.setdefault(value, set()).add(state)
    several = {value: states for value, states in known.items() if len(states) > 1}
    if not several:
        return _solved(problem)
    states = sorted(set().union(*several.values()))
    plans = [_solved(_in_one_state(problem, state, several)) for state in states]
    return min((plan for plan in plans if plan is not None), key=lambda plan: plan.cost, default=None)


def _places(problem: ChoiceProblem) -> Iterator[Place]:
    for option in problem.options:
        yield from option.reads
        yield from option.writes
    yield from problem.given
    yield from problem.wanted


def _in_one_state(problem: ChoiceProblem, state: State, several: dict[str, set[State]]) -> ChoiceProblem:
    """The problem with only the options that ``uniform`` allows; copies are then useful only at the ends."""
    given = {value for value, _ in problem.given}

    def fits(place: Place) -> bool:
        value, own = place
        return value not in several or own == state or (value in given and state not in several[value])

    options = tuple(each for each in problem.options if all(map(fits, (*each.reads, *each.writes))))
    return replace(problem, options=options)


def _solved(problem: ChoiceProblem) -> JointChoice | None:
    return Choosing(problem).best()


class Choosing:
    """The integer program of a choice. ``options`` are its first columns, ``copies`` some of the others. Rows may be
    added before ``best`` is called."""

    def __init__(self, problem: ChoiceProblem) -> None:
        check_choice(problem)
        self._problem, self.options = problem, _undominated(problem.options)
        self.program, self.copies = _modelled(problem, self.options)

    def best(self) -> JointChoice | None:
        """The cheapest plan; None where there is none."""
        while (taken := self.program.optimum()) is not None:
            chosen = [option for column, option in enumerate(self.options) if column in taken]
            circles = list(_circles(chosen))
            if not circles:
                copies = tuple(copy for copy, column in self.copies.items() if column in taken)
                return plan_of(replace(self._problem, copies=copies), chosen)
            for circle in circles:
                alike = {_outline(chosen[member]) for member in circle}
                columns = [column for column, option in enumerate(self.options) if _outline(option) in alike]
                self.program.row(columns, (), upper=len(circle) - 1)
        return None


def _undominated(options: Iterable[Option]) -> list[Option]:
    """The options sorted by name, without those for which a cheaper one covers, reads and writes the same and needs no
    more memory."""
    kept, smallest = list[Option](), dict[object, int]()
    for option in sorted(options, key=lambda each: (each.cost, *option_key(each))):
        places, footprint = (frozenset(option.reads), frozenset(option.writes)), option.footprint
        alike = option.covers, *places, footprint.outside, footprint.overwrites
        if alike not in smallest or footprint.workspace_bytes < smallest[alike]:
            smallest[alike] = footprint.workspace_bytes
            kept.append(option)
    return sorted(kept, key=option_key)


def _outline(option: Option) -> object:
    """The part of an option that decides which others it must follow. At most one option per outline is chosen."""
    values = (frozenset(value for value, _ in places) for places in (option.reads, option.writes))
    return option.covers, *values


def _circles(chosen: Sequence[Option]) -> Iterator[list[int]]:
    """Options that wait for each other, because each computes a node before and a node after the other's."""
    writers: dict[str, list[int]] = {}
    for index, option in enumerate(chosen):
        for value in dict.fromkeys(value for value, _ in option.writes):
            writers.setdefault(value, []).append(index)
    before = {
        index: [writer for value, _ in option.reads for writer in writers.get(value, ())]
        for index, option in enumerate(chosen)
    }
    while True:
        try:
            TopologicalSorter(before).prepare()
        except CycleError as error:
            circle = error.args[1][1:]
            yield circle
            before[circle[0]] = []
        else:
            return


def _modelled(problem: ChoiceProblem, options: Sequence[Option]) -> tuple[IntegerProgram, dict[Copy, int]]:
    """The program whose first columns are the options, and the columns of copies."""
    model, copying = IntegerProgram(_TIES_US / max(1, len(problem.nodes))), dict[Copy, int]()
    covering: dict[str, list[int]] = {node: [] for node in problem.nodes}
    writing: dict[Place, list[int]] = {}
    for option in options:
        column = model.column(option.cost, repr(option_key(option)))
        for node in sorted(option.covers):
            covering[node].append(column)
        for place in dict.fromkeys(option.writes):
            writing.setdefault(place, []).append(column)
    for columns in covering.values():
        model.row(columns, (), lower=1, upper=1)
    into = copies_into(problem)
    for value, demands in _demands(problem, options).items():
        _supply(model, value, demands, writing, set(problem.given), into, copying)
    return model, copying


@dataclass(slots=True)
class _Demand:
    """Readers of a value, of which a plan has at most one, by the state that they read; or a wanted place."""

    readers: dict[State, list[int]] = field(default_factory=dict)
    always: bool = False


def _demands(problem: ChoiceProblem, options: Sequence[Option]) -> dict[str, list[_Demand]]:
    """The demands on each value. All ways of one node share a demand, and so do groups that contain it."""
    given = set(problem.given)
    # An option may read one value in two states; each of these reads is a demand of its own.
    reading: dict[tuple[str, int], list[tuple[int, State]]] = {}
    for column, option in enumerate(options):
        seen: dict[str, int] = {}
        for value, state in dict.fromkeys(option.reads):
            if (value, state) not in given:
                seen[value] = seen.get(value, 0) + 1
                reading.setdefault((value, seen[value]), []).append((column, state))
    position = {node: index for index, node in enumerate(problem.nodes)}
    demands: dict[str, list[_Demand]] = {}
    for value, time in sorted(reading):
        demands.setdefault(value, []).extend(_by_node(reading[value, time], options, position.__getitem__))
    for value, state in sorted(set(problem.wanted) - given):
        demands.setdefault(value, []).append(_Demand({state: []}, always=True))
    return demands


def _by_node(
    reading: Iterable[tuple[int, State]], options: Sequence[Option], position: Callable[[str], int]
) -> Iterator[_Demand]:
    """The readers grouped by few nodes, each reader once; the ways of single nodes determine the grouping."""
    state_of = dict(reading)
    for columns in exclusive(state_of, options, position):
        demand = _Demand()
        for column in columns:
            demand.readers.setdefault(state_of[column], []).append(column)
        yield demand


def exclusive(
    columns: Iterable[int], options: Sequence[Option], position: Callable[[str], int]
) -> Iterator[tuple[int, ...]]:
    """The columns of options in few sets that cover a common node, so that a plan has at most one of each set."""
    every = sorted(columns, key=lambda column: len(options[column].covers))
    left = every
    while left:
        node = min(options[left[0]].covers, key=position)
        yield tuple(column for column in every if node in options[column].covers)
        left = [column for column in left if node not in options[column].covers]


def _supply(
    model: IntegerProgram,
    value: str,
    demands: Sequence[_Demand],
    writing: dict[Place, list[int]],
    given: set[Place],
    into: dict[Place, list[Copy]],
    copying: dict[Copy, int],
) -> None:
    """A read value flows from its place to a demand, through copies whose cost all demands share."""
    # One row for each copy and each read would be correct, but in the relaxed program a copy from a half-chosen state
    # could then supply two halves. Bounding the whole flow from a state to one demand makes it nearly integral.
    for demand in demands:
        leaving: dict[State, list[int]] = {}
        for state, readers in demand.readers.items():
            arriving = []
            if (value, state) in writing:
                arriving.append(model.column())
                leaving.setdefault(state, []).append(arriving[-1])
            for copy in into.get((value, state), ()):
                if (value, copy.source) not in given and (value, copy.source) not in writing:
                    continue
                named = f"{value}\0{copy.source}\0{state}"
                if len(demands) == 1:
                    arriving.append(model.column(copy.cost, named))
                    copying[copy] = arriving[-1]
                else:
                    arriving.append(model.column())
                    if copy not in copying:
                        copying[copy] = model.column(copy.cost, named)
                    model.row([arriving[-1]], [copying[copy]], upper=0)
                leaving.setdefault(copy.source, []).append(arriving[-1])
            model.row(arriving, readers, lower=float(demand.always))
        for source, flows in leaving.items():
            if (value, source) not in given:
                model.row(flows, writing[value, source], upper=0)
