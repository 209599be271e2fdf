"""Memory footprints of ways, for a joint choice under a memory limit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from convwright.core.candidate import Candidate
from convwright.core.device import DeviceFacts
from convwright.engine.planning.assignment import Step, given_state
from convwright.engine.planning.lifetimes import overwritable
from convwright.engine.planning.ways import CopyWay, Way
from convwright.graph.choice import Footprint, Place
from convwright.graph.graph import Graph
from convwright.graph.limited_choice import Storage
from convwright.graph.memory_plan import aligned
from convwright.graph.operations import NO_PROBLEM, NOTHING_RUNS, View
from convwright.graph.states import State, States
from convwright.tuning.listing import build


@dataclass(frozen=True, slots=True)
class CandidateNeeds:
    """The memory that a candidate's plan needs."""

    workspace_bytes: int
    writes_out: bool


class Footprints:
    """Memory that ways and steps need on a device. Each candidate is examined once.

    Plans of PyTorch's functions are always built, since only they know whether they write to given memory. Other plans
    are built if the candidate does not know its workspace and ``exact`` is True.
    """

    def __init__(self, graph: Graph, states: States, device: DeviceFacts) -> None:
        self._graph, self._states, self._device = graph, states, device
        self._known: dict[tuple[Candidate, bool], CandidateNeeds] = {}
        self._buffers = _buffers(graph, states)

    def needs(self, candidate: Candidate | None, *, exact: bool) -> CandidateNeeds | None:
        """The needs of a candidate. None if there is none: PyTorch's operator allocates its output, or nothing runs."""
        if candidate is None:
            return None
        if (candidate, exact) not in self._known:
            self._known[candidate, exact] = self._found(candidate, exact)
        return self._known[candidate, exact]

    def _found(self, candidate: Candidate, exact: bool) -> CandidateNeeds:
        nbytes, is_torch = candidate.workspace_bytes, candidate.leaf.backend == "torch"
        asks = exact and self._device.present  # an absent device cannot be asked
        if is_torch or (asks and (nbytes is None or candidate.workspace_is_bound)):
            plan = build(candidate, self._device)
            return CandidateNeeds(plan.workspace_bytes, plan.writes_out)
        return CandidateNeeds(nbytes or 0, writes_out=True)

    def of_steps(self, steps: Sequence[Step], *, exact: bool) -> list[CandidateNeeds | None]:
        return [self.needs(step.candidate, exact=exact) for step in steps]

    def of(self, way: Way | CopyWay) -> Footprint:
        """The footprint of a way, as exact as possible."""
        needs = self.needs(way.candidate, exact=True)
        if needs is None and (isinstance(way, CopyWay) or not isinstance(way.operation, NO_PROBLEM)):
            needs = CandidateNeeds(0, writes_out=True)  # not known yet
        if isinstance(way, CopyWay):
            assert needs is not None
            in_slice = self._states.named(way.value, way.target).slice is not None
            return Footprint(needs.workspace_bytes, not (needs.writes_out or in_slice))
        if needs is None:
            return Footprint(outside=not isinstance(way.operation, NOTHING_RUNS))
        states = [self._states.named(*place) for place in way.writes]
        outside = not needs.writes_out and all(state.slice is None for state in states)
        over = frozenset[Place]() if outside or any(state.slice for state in states) else self._overwritten(way)
        return Footprint(needs.workspace_bytes, outside, over)

    def _overwritten(self, way: Way) -> frozenset[Place]:
        states = dict(way.reads)
        reads = tuple((role, value) for role, value in way.group.reads if value in states)
        places = [(value, states[value]) for role, value in reads if role in overwritable(way.candidate, reads)]
        lying = [self._buffers.get(place) for place in way.reads]
        return frozenset(
            place for place in places
            if lying.count(self._buffers.get(place)) == 1 and self._states.named(*place).slice is None
        )  # fmt: skip

    def storage(self, turns: Mapping[str, int]) -> Storage:
        """Where values lie, if nodes run in the order of ``turns``."""
        sizes = {
            buffer: aligned(_whole(self._states.named(*place), self._states).spec.span_bytes)
            for place, buffer in reversed(self._buffers.items())
        }
        return Storage(self._buffers, sizes, turns)


def _whole(state: State, states: States) -> State:
    return state if state.slice is None else states.dense(state.slice.whole, state.layout)


def _buffers(graph: Graph, states: States) -> dict[Place, str]:
    """The buffer of each value in each state. Inputs, constants and their views have none."""
    buffers: dict[Place, str] = {}
    views = {node.writes[0]: node.reads[0][1] for node in graph.nodes if isinstance(node.operation, View)}
    order = [*graph.inputs, *(value for node in graph.nodes for value in node.writes)]
    for value in order:
        for state in states.all(value):
            place, viewed = (value, state.name), views.get(value)
            if viewed is not None and state == states.dense(value, states.all(value)[0].layout):
                plain = viewed, states.all(viewed)[0].name if viewed not in graph.constants else ""
                if plain in buffers:
                    buffers[place] = buffers[plain]
            elif state.slice is not None:
                buffers[place] = f"parts of {state.slice.whole}@{state.layout}"
            elif value not in graph.inputs or state != given_state(value, graph, states):
                buffers[place] = f"{value}@{state.name}"
    return buffers
