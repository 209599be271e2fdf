"""The joint choice of one way for each node of a network: costs of ways and copies in, the cheapest plan out."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from graphlib import CycleError, TopologicalSorter
from importlib import import_module
from math import inf
from typing import Any
from zlib import crc32

from convwright.errors import BackendError, Refused
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

_TIES_US = 1e-4  # what all names together add to the costs: a tenth of a nanosecond
_INFEASIBLE = 2  # the status that scipy gives


def solve(problem: ChoiceProblem) -> JointChoice:
    """The cheapest plan: each node covered once, each read and each wanted place written, given or copied to.

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
    """The problem with only such options as ``uniform`` allows, which leave copies no use but at the ends."""
    given = {value for value, _ in problem.given}

    def fits(place: Place) -> bool:
        value, own = place
        return value not in several or own == state or (value in given and state not in several[value])

    options = tuple(each for each in problem.options if all(map(fits, (*each.reads, *each.writes))))
    return replace(problem, options=options)


def _solved(problem: ChoiceProblem) -> JointChoice | None:
    check_choice(problem)
    options = _undominated(problem.options)
    model = _modelled(problem, options)
    while (taken := model.optimum(len(options))) is not None:
        chosen = [options[column] for column in taken]
        circles = list(_circles(chosen))
        if not circles:
            return plan_of(problem, chosen)
        for circle in circles:
            alike = {_outline(chosen[member]) for member in circle}
            columns = [column for column, option in enumerate(options) if _outline(option) in alike]
            model.row(columns, (), upper=len(circle) - 1)
    return None


def _undominated(options: Iterable[Option]) -> list[Option]:
    """The cheapest of those that cover, read and write the same, sorted by their names."""
    cheapest: dict[object, Option] = {}
    for option in sorted(options, key=lambda each: (each.cost, *option_key(each))):
        cheapest.setdefault((option.covers, frozenset(option.reads), frozenset(option.writes)), option)
    return sorted(cheapest.values(), key=option_key)


def _outline(option: Option) -> object:
    """What decides after which others an option runs. At most one of an outline is chosen."""
    values = (frozenset(value for value, _ in places) for places in (option.reads, option.writes))
    return option.covers, *values


def _circles(chosen: Sequence[Option]) -> Iterator[list[int]]:
    """Options that wait for one another, as those that each compute a node before the other's and one after it."""
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


@dataclass(slots=True)
class _Model:
    """An integer program by its columns, each 0 or 1, and its rows."""

    unit: float  # what a name adds at most to a cost
    costs: list[float] = field(default_factory=list)
    lower: list[float] = field(default_factory=list)
    upper: list[float] = field(default_factory=list)
    rows: list[int] = field(default_factory=list)
    columns: list[int] = field(default_factory=list)
    factors: list[float] = field(default_factory=list)

    def column(self, cost: float = 0.0, name: str | None = None) -> int:
        # Repeated layers cost the same, so many plans do. Each name adds its own share of a tenth of a nanosecond,
        # which leaves one cheapest plan, whatever the solver's version tries first. Should that ever fall below the
        # solver's tolerance, the rows and columns still stand in an order that only names decide.
        self.costs.append(cost if name is None else cost + self.unit * crc32(name.encode()) / 2**32)
        return len(self.costs) - 1

    def row(self, plus: Iterable[int], minus: Iterable[int], *, lower: float = -inf, upper: float = inf) -> None:
        """The columns ``plus`` less the columns ``minus`` lie from ``lower`` to ``upper``."""
        for factor, columns in ((1.0, plus), (-1.0, minus)):
            for column in columns:
                self.rows.append(len(self.lower))
                self.columns.append(column)
                self.factors.append(factor)
        self.lower.append(lower)
        self.upper.append(upper)

    def optimum(self, first: int) -> list[int] | None:
        """Which of the ``first`` columns are 1 where the columns cost least; None where nothing fits the rows."""
        optimize, sparse = _scipy("scipy.optimize"), _scipy("scipy.sparse")
        if not self.costs:  # which scipy takes for an error
            return None if any(least > 0 for least in self.lower) else []
        shape = (len(self.lower), len(self.costs))
        matrix = sparse.csr_array((self.factors, (self.rows, self.columns)), shape=shape)
        found = optimize.milp(
            [cost * 1000 for cost in self.costs],  # in nanoseconds: the solver's tolerances are absolute
            integrality=1,  # flows follow from the options, yet HiGHS proves hard networks twice as fast by whole ones
            bounds=optimize.Bounds(0, 1),
            constraints=optimize.LinearConstraint(matrix, self.lower, self.upper),
            options={"mip_rel_gap": 0},
        )
        if found.status == _INFEASIBLE:
            return None
        if not found.success:
            raise BackendError(f"scipy finds no plan of the network: {found.message}")
        return [column for column in range(first) if found.x[column] > 0.5]


def _scipy(module: str) -> Any:
    try:
        return import_module(module)
    except ImportError as error:
        raise Refused("planning a network needs scipy: pip install 'convwright[engine]'") from error


def _modelled(problem: ChoiceProblem, options: Sequence[Option]) -> _Model:
    """The program whose first columns are the options."""
    model = _Model(_TIES_US / max(1, len(problem.nodes)))
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
        _supply(model, value, demands, writing, set(problem.given), into)
    return model


@dataclass(slots=True)
class _Demand:
    """Readers of a value of which a plan has one at most, by the state that they read; or what has to be there."""

    readers: dict[State, list[int]] = field(default_factory=dict)
    always: bool = False


def _demands(problem: ChoiceProblem, options: Sequence[Option]) -> dict[str, list[_Demand]]:
    """What is asked of each value. Ways of one node share a demand, and so do those of groups that hold it."""
    given = set(problem.given)
    # An option may read one value in two states. Each of these two reads is a demand of its own.
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
    """The readers by few nodes, of which each is in one: ways of a single node say which."""
    left = sorted(reading, key=lambda reader: len(options[reader[0]].covers))
    everyone = left
    while left:
        node = min(options[left[0][0]].covers, key=position)
        demand = _Demand()
        for column, state in everyone:
            if node in options[column].covers:
                demand.readers.setdefault(state, []).append(column)
        yield demand
        left = [reader for reader in left if node not in options[reader[0]].covers]


def _supply(
    model: _Model,
    value: str,
    demands: Sequence[_Demand],
    writing: dict[Place, list[int]],
    given: set[Place],
    into: dict[Place, list[Copy]],
) -> None:
    """What is read flows from where it lies to a demand, through copies that all demands pay together."""
    # One row for each copy and each read is enough, but a copy out of a half-chosen state then feeds two halves. What
    # flows out of a state to one demand is bounded as a whole instead, by which the relaxed program is nearly whole.
    shared: dict[Place, int] = {}
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
                else:
                    arriving.append(model.column())
                    if (copy.source, state) not in shared:
                        shared[copy.source, state] = model.column(copy.cost, named)
                    model.row([arriving[-1]], [shared[copy.source, state]], upper=0)
                leaving.setdefault(copy.source, []).append(arriving[-1])
            model.row(arriving, readers, lower=float(demand.always))
        for source, flows in leaving.items():
            if (value, source) not in given:
                model.row(flows, writing[value, source], upper=0)
