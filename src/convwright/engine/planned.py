"""A network → its assignment: groups, ways, the joint choice."""

from __future__ import annotations

from convwright.core.device import DeviceFacts
from convwright.core.policy import Policy
from convwright.engine.assignment import Assignment, assignment, choice_problem, ends
from convwright.engine.costs import Costs
from convwright.engine.network import Network
from convwright.engine.ways import Timed, copies, ways
from convwright.graph.greedy_choice import greedy
from convwright.graph.groups import groups
from convwright.graph.joint_choice import solve, uniform
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
    ) -> None:
        self.network, graph = network, network.graph
        timed = Timed(device, policy, mode, store)
        self._ways = ways(graph, groups(graph), timed, progress)
        places = [*ends(graph, graph.inputs), *ends(graph, graph.outputs)]
        places += [place for way in self._ways for place in (*way.reads, *way.writes)]
        self._copies = copies(graph, places, timed, progress)

    def assignment(self, costs: Costs) -> Assignment:
        """The cheapest assignment, beside simpler choices."""
        found, between = tuple(map(costs.corrected, self._ways)), tuple(map(costs.corrected, self._copies))
        problem = choice_problem(self.network.graph, found, between)
        best, in_one_layout = solve(problem), uniform(problem)
        return assignment(
            self.network.graph, best, found, between,
            greedy_us=greedy(problem).cost, uniform_us=None if in_one_layout is None else in_one_layout.cost,
        )  # fmt: skip
