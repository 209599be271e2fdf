"""A network → its assignment: groups, ways, the joint choice."""

from __future__ import annotations

from convwright.core.device import DeviceFacts
from convwright.core.policy import Policy
from convwright.engine.assignment import Assignment, assignment, choice_problem, ends
from convwright.engine.costs import Costs
from convwright.engine.network import Network
from convwright.engine.ways import CopyWay, Timed, Way, copies, ways
from convwright.errors import Refused
from convwright.graph.choice import ChoiceProblem
from convwright.graph.greedy_choice import greedy
from convwright.graph.groups import groups, inside, largest
from convwright.graph.joint_choice import solve, uniform
from convwright.graph.states import States
from convwright.settings import Mode
from convwright.store.store import Store
from convwright.tuning.trials.search_input import NO_HOOKS, Progress


class Planner:
    """All ways to compute a network on a device, timed here or known to the store, and the cheapest choice of them."""

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
        timed: Timed | None = None,
    ) -> None:
        self.network, graph = network, network.graph
        # On a CPU convolutions make their own output, which is copied to a slice as it is by a concatenation.
        self._states = States(graph, sliced=device.kind == "cuda" if sliced is None else sliced)
        timed = timed or Timed(device, policy, mode, store)
        self._ways = self._found(timed, progress)
        places = [*ends(graph, self._states, graph.inputs), *ends(graph, self._states, graph.outputs)]
        places += [place for way in self._ways for place in (*way.reads, *way.writes)]
        self._copies = copies(places, self._states, timed, progress)

    def _found(self, timed: Timed, progress: Progress) -> tuple[Way, ...]:
        """The ways of the largest groups, and of smaller ones where nothing computes a larger."""
        graph, every = self.network.graph, groups(self.network.graph)
        wanted = largest(every, graph)
        while True:
            found = ways(graph, wanted, self._states, timed, progress)
            computed = {way.group for way in found}
            missing = [group for group in wanted if group not in computed]
            more = [group for group in inside(every, missing) if group not in wanted]
            if not more:
                return found
            wanted = (*wanted, *more)

    def assignment(self, costs: Costs) -> Assignment:
        """The cheapest assignment, beside simpler choices."""
        found, between = tuple(map(costs.corrected, self._ways)), tuple(map(costs.corrected, self._copies))
        graph, states = self.network.graph, self._states
        problem = choice_problem(graph, states, found, between)
        dense = choice_problem(graph, states, filter(self._is_dense, found), filter(self._is_dense, between))
        best, in_one_layout = solve(problem), uniform(dense)
        return assignment(
            graph, states, best, found, between,
            greedy_us=_greedy_us(problem), uniform_us=None if in_one_layout is None else in_one_layout.cost,
        )  # fmt: skip

    def _is_dense(self, way: Way | CopyWay) -> bool:
        """Whether it reads and writes no slices."""
        places = (
            (*way.reads, *way.writes) if isinstance(way, Way) else ((way.value, way.source), (way.value, way.target))
        )
        return all(self._states.named(*place).slice is None for place in places)


def _greedy_us(problem: ChoiceProblem) -> float | None:
    """None where a choice node by node ends where nothing goes on."""
    try:
        return greedy(problem).cost
    except Refused:
        return None
