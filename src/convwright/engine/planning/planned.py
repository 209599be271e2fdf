"""Plan a network: groups, ways, joint choice → assignment."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from convwright.core.candidate import Candidate
from convwright.core.device import DeviceFacts
from convwright.core.policy import Policy
from convwright.engine.network import Network
from convwright.engine.planning.assignment import Assignment, Step, assignment, choice_problem, ends
from convwright.engine.planning.costs import Costs
from convwright.engine.planning.footprints import Footprints
from convwright.engine.planning.lifetimes import Lifetimes
from convwright.engine.planning.memory_budget import Budget, nbytes
from convwright.engine.planning.reasons import EARLIER, FASTEST, with_reasons
from convwright.engine.planning.searched_groups import SearchedGroups
from convwright.engine.planning.searched_times import SearchedTimes
from convwright.engine.planning.times import TimeSource
from convwright.engine.planning.ways import CopyWay, Timed, Way, copies
from convwright.errors import Refused
from convwright.graph.choice import ChoiceProblem, JointChoice
from convwright.graph.graph import Graph
from convwright.graph.greedy_choice import greedy
from convwright.graph.groups import Group, groups, inside, largest
from convwright.graph.joint_choice import solve, uniform
from convwright.graph.operations import NO_PROBLEM, Join, Operation
from convwright.graph.states import States
from convwright.settings import Mode
from convwright.store.store import Store
from convwright.tuning.trials.search_input import NO_HOOKS, Progress

# At most so many rounds choose copies and slices and search for them. Later rounds choose only searched ones.
_ROUNDS = 8


class Planner:
    """All ways to compute a network on a device, and the cheapest choice of them. ``times`` gives the times of
    candidates, by default from searches.

    ``tf32`` names the nodes that may use TF32; None follows PyTorch's flags."""

    def __init__(
        self,
        network: Network,
        device: DeviceFacts,
        policy: Policy,
        *,
        mode: Mode,
        store: Store,
        progress: Progress = NO_HOOKS.progress,
        sliced: bool | None = None,
        tf32: Collection[str] | None = None,
        memory_budget: int | None = None,
        times: TimeSource | None = None,
    ) -> None:
        self.network, self._tf32, graph = network, tf32, network.graph
        self._budget = memory_budget
        self._fastest = FASTEST if mode.measures or times is not None else EARLIER
        # On a CPU convolutions allocate their own output, and writing it to a slice copies it just as concatenation
        # does. Slices save copies only for values that are concatenated several times.
        if sliced is None:
            sliced = device.kind == "cuda" or _joins_again(graph)
        self._states = States(graph, sliced=sliced)
        source = times or SearchedTimes(device, policy, mode, store, frugal=memory_budget is not None)
        self._timed, self._progress = Timed(source), progress
        self._parts = [SearchedGroups(self._timed, None if tf32 is None else False)]
        if tf32 is not None:
            self._parts.append(SearchedGroups(Timed(source), True))
        self._search_groups()
        places = [*ends(graph, self._states, graph.inputs), *ends(graph, self._states, graph.outputs)]
        places += [place for way in self._ways() for place in (*way.reads, *way.writes)]
        self._copies = copies(places, self._states)
        self.footprints = Footprints(graph, self._states, device)

    def _search_groups(self) -> None:
        """Search for the largest groups, and for smaller ones if nothing computes a larger."""
        graph, every = self.network.graph, groups(self.network.graph)
        wanted: tuple[Group, ...] = largest(every, graph)
        missing = list(wanted)
        while missing:
            for part in self._parts:
                part.add([group for group in missing if part.tf32 in (None, self._in_tf32(group))], graph, self._states)
                part.search_first(self._progress)
            computed = {way.group for way in self._ways()}
            missing = [group for group in wanted if group not in computed]
            missing = [group for group in inside(every, missing) if group not in wanted]
            wanted = (*wanted, *missing)

    def _in_tf32(self, group: Group) -> bool:
        return self._tf32 is not None and any(node in self._tf32 for node in group.nodes)

    def _ways(self) -> tuple[Way, ...]:
        """All ways, with the times known so far."""
        return tuple(way for part in self._parts for way in part.ways())

    def assignment(self, costs: Costs) -> Assignment:
        """The cheapest assignment within the budget, with the totals of simpler choices. Copies, and operations on
        slices, are searched for only if they would be chosen."""
        copies: Sequence[CopyWay] = self._copies
        for _ in range(_ROUNDS):
            assigned = self._assigned(costs, copies)
            new = _unknown(assigned)
            if not new:
                break
            self._search(new)
        else:
            for part in self._parts:
                part.leave_unknown()
            copies = [copy for copy in copies if self._timed.knows(copy.problem)]
            assigned = self._assigned(costs, copies)
        found, between = self._costing(costs, copies)
        problem = choice_problem(self.network.graph, self._states, found, between)
        in_one_layout = self._uniform(found, between)
        uniform_us = None if in_one_layout is None else in_one_layout.cost
        assigned = replace(assigned, greedy_us=_greedy_us(problem), uniform_us=uniform_us)
        return with_reasons(assigned, found, self._fastest)

    def variants(self, assigned: Assignment, costs: Costs) -> Iterator[Assignment]:
        """Other assignments of searched ways, so that their steps can be timed: ``assigned`` with each step's second
        candidate, with its third, and the cheapest in one layout."""
        close: dict[Operation, dict[str, Candidate]] = {}
        for way in self._ways():
            if way.candidate is not None:
                close.setdefault(way.operation, {}).setdefault(way.candidate.id, way.candidate)
        for number in range(max(map(len, close.values()), default=1) - 1):
            steps = tuple(_with_other(step, close.get(step.operation, {}), number) for step in assigned.steps)
            if steps != assigned.steps:
                yield replace(assigned, steps=steps)
        found, between = self._costing(costs, self._copies)
        in_one_layout = self._uniform(found, between)
        if in_one_layout is not None:
            made = self._made(in_one_layout, found, between, self._as_exported)
            if not _unknown(made):
                yield made

    def _uniform(self, found: Iterable[Way], between: Iterable[CopyWay]) -> JointChoice | None:
        """The cheapest choice in one layout, without slices."""
        dense = filter(self._is_dense, found), filter(self._is_dense, between)
        return uniform(choice_problem(self.network.graph, self._states, *dense))

    def _search(self, steps: Iterable[Step]) -> None:
        names = {each.group.name: part for part in self._parts for each in part.possible}
        for part in self._parts:
            part.search(
                [step.operation for step in steps if names.get(step.name, self._parts[0]) is part], self._progress
            )

    def _costing(self, costs: Costs, copies: Iterable[CopyWay]) -> tuple[tuple[Way, ...], tuple[CopyWay, ...]]:
        """All ways and these copies, with their costs in the network."""
        return tuple(map(costs.corrected, self._ways())), tuple(map(costs.corrected, self._timed.copying(copies)))

    def _assigned(self, costs: Costs, copies: Iterable[CopyWay]) -> Assignment:
        found, between = self._costing(costs, copies)
        graph, states = self.network.graph, self._states
        problem = choice_problem(graph, states, found, between)

        def made(choice: JointChoice, turns: Mapping[str, int]) -> Assignment:
            return self._made(choice, found, between, turns)

        cheapest = made(solve(problem), self._as_exported)
        if self._budget is None or nbytes(cheapest, self.footprints) <= self._budget:
            return cheapest
        limited = Budget(
            self._budget, cheapest, choice_problem(graph, states, found, between, self.footprints.of),
            self.footprints, self._as_exported, {way.group.name: way.group.nodes for way in found}, made,
        )  # fmt: skip
        if (fitting := limited.cheapest()) is not None:
            return fitting
        if _unknown(cheapest):
            return cheapest  # searching its steps may make another choice the cheapest, and that may fit
        return limited.smallest()

    @property
    def _as_exported(self) -> dict[str, int]:
        """The turn of each node in the exported order."""
        return {node.name: turn for turn, node in enumerate(self.network.graph.nodes)}

    def _made(
        self, choice: JointChoice, found: Iterable[Way], between: Iterable[CopyWay], turns: Mapping[str, int]
    ) -> Assignment:
        """The steps of a choice, in the order that needs the least memory."""
        made = assignment(self.network.graph, self._states, choice, found, between, turns=turns)
        return Lifetimes(made, self.footprints.of_steps(made.steps, exact=False)).reordered()

    def _is_dense(self, way: Way | CopyWay) -> bool:
        """Whether it reads and writes no slices."""
        places = (
            (*way.reads, *way.writes) if isinstance(way, Way) else ((way.value, way.source), (way.value, way.target))
        )
        return all(self._states.named(*place).slice is None for place in places)


def _unknown(assigned: Assignment) -> list[Step]:
    """Steps that were not searched for yet."""
    return [step for step in assigned.steps if step.candidate is None and not isinstance(step.operation, NO_PROBLEM)]


def _with_other(step: Step, close: Mapping[str, Candidate], number: int) -> Step:
    """The step with the candidate of this number among the others for its operation; the same if it has fewer."""
    others = [each for id_, each in close.items() if step.candidate is not None and id_ != step.candidate.id]
    return replace(step, candidate=others[number]) if number < len(others) else step


def _joins_again(graph: Graph) -> bool:
    """Whether a value is part of several concatenations, or of nested ones."""
    joins = [node for node in graph.nodes if isinstance(node.operation, Join)]
    wholes = {whole for node in joins for whole in node.writes}
    parts = Counter(value for node in joins for value in {value for _, value in node.reads})
    return any(times > 1 or value in wholes for value, times in parts.items())


def _greedy_us(problem: ChoiceProblem) -> float | None:
    """The total of a greedy choice; None if that reaches a dead end."""
    try:
        return greedy(problem).cost
    except Refused:
        return None
