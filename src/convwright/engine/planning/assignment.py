"""All that a run of a network needs, as data: the steps in order, what each reads and writes, and why."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from convwright.core.candidate import Candidate
from convwright.core.finding import Interval
from convwright.core.record import Record
from convwright.core.tensor_spec import TensorSpec
from convwright.engine.planning.ways import CopyWay, Way
from convwright.graph.choice import ChoiceProblem, Copy, Footprint, JointChoice, Option, Place
from convwright.graph.graph import Graph
from convwright.graph.operations import Join, Operation
from convwright.graph.states import State, States
from convwright.measuring.paired import Paired


@dataclass(frozen=True, slots=True)
class RunnerUp(Record):
    """The next best candidate; it was expected to take ``times`` as long."""

    id: str
    times: float


@dataclass(frozen=True, slots=True)
class Step(Record):
    """One operation. ``reads`` and ``writes`` name tensors: a constant by its name, any other by value and layout.
    ``candidate`` is None for an operator of PyTorch and for a step that runs nothing: a view, or a concatenation in
    place. ``reason`` says briefly why this step was chosen."""

    name: str
    operation: Operation
    reads: tuple[tuple[str, str], ...]
    writes: tuple[str, ...]
    candidate: Candidate | None
    time_us: Interval
    runner_up: RunnerUp | None = field(default=None, compare=False)
    reason: str = field(default="", compare=False)


@dataclass(frozen=True, slots=True)
class Assignment(Record):
    """``tensors`` are all tensors of the steps except constants. ``inputs`` and ``outputs`` name some of them in the
    network's order. ``slices`` gives the byte offset of each tensor inside a larger one of ``wholes``.
    ``modelled_us`` is the total that the joint choice expected; ``greedy_us`` and ``uniform_us`` are the totals of
    simpler choices. ``beside_model`` compares a call of the engine with a call of its model, if it was measured."""

    tensors: dict[str, TensorSpec] = field(hash=False)
    steps: tuple[Step, ...]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    constants: dict[str, TensorSpec] = field(hash=False)
    slices: dict[str, tuple[str, int]] = field(hash=False)
    wholes: dict[str, TensorSpec] = field(hash=False)
    modelled_us: float
    greedy_us: float | None = None
    uniform_us: float | None = None
    beside_model: Paired | str | None = None

    def taking(self, times_us: Sequence[float]) -> Assignment:
        """The same, with the times of its steps measured in the network."""
        steps = tuple(
            replace(step, time_us=Interval(time_us, time_us, time_us))
            for step, time_us in zip(self.steps, times_us, strict=True)
        )
        return replace(self, steps=steps)

    @property
    def steps_us(self) -> float:
        """The sum of the steps' times, measured in the network if they were."""
        return sum(step.time_us.value for step in self.steps)

    def last_uses(self) -> dict[str, int]:
        """The last step that needs each tensor; an output is needed after the last step."""
        last = {
            name: number
            for number, step in enumerate(self.steps)
            for name in (*step.writes, *dict(step.reads).values())
        }
        return last | dict.fromkeys(self.outputs, len(self.steps))


def choice_problem(
    graph: Graph,
    states: States,
    ways: Iterable[Way],
    copies: Iterable[CopyWay],
    footprint: Callable[[Way | CopyWay], Footprint] = lambda _: Footprint(),
) -> ChoiceProblem:
    """The input of the joint choice."""
    return ChoiceProblem(
        nodes=tuple(node.name for node in graph.nodes),
        options=tuple(
            Option(way.name, frozenset(way.group.nodes), way.reads, way.writes, way.time_us.value, footprint(way))
            for way in ways
        ),
        copies=tuple(
            Copy(each.value, each.source, each.target, max(each.time_us.value, 0.0), footprint(each)) for each in copies
        ),
        given=tuple(ends(graph, states, graph.inputs)),
        wanted=tuple(ends(graph, states, graph.outputs)),
    )


def ends(graph: Graph, states: States, values: Iterable[str]) -> Iterable[Place]:
    """Inputs or outputs in the states that the caller sees, each once, without constants."""
    for value in dict.fromkeys(values):
        if value not in graph.constants:
            yield value, given_state(value, graph, states).name


def given_state(value: str, graph: Graph, states: States) -> State:
    """The caller's state of an input or output. One without a layout is copied to one."""
    return states.dense(value, graph.values[value].layout)


def assignment(
    graph: Graph,
    states: States,
    chosen: JointChoice,
    ways: Iterable[Way],
    copies: Iterable[CopyWay],
    *,
    turns: Mapping[str, int],
) -> Assignment:
    """The steps of a joint choice, in the order of ``turns``. Each copy runs right before its first reader."""
    by_name, made = {way.name: way for way in ways}, _Steps(graph, states, copies, chosen.copies)
    for way in sorted((by_name[option.name] for option in chosen.options), key=lambda way: last_turn(way, turns)):
        made.add(way)
    outputs, inputs = (
        tuple(make(value, given_state(value, graph, states).name) for value in values)
        for make, values in ((made.there, graph.outputs), (made.named, graph.inputs))
    )
    tensors = {name: states.named(*place).spec for name, place in made.places.items()}
    slices, wholes = dict[str, tuple[str, int]](), dict[str, TensorSpec]()
    for name, (value, state_name) in made.places.items():
        state = states.named(value, state_name)
        if state.slice is not None:
            whole = states.dense(state.slice.whole, state.layout)
            slices[name] = f"parts of {state.slice.whole}@{state.layout}", state.offset_bytes
            wholes[slices[name][0]] = whole.spec
    constants = {name: graph.values[name] for name in graph.constants}
    modelled_us = sum(step.time_us.value for step in made.steps)
    return Assignment(tensors, tuple(made.steps), inputs, outputs, constants, slices, wholes, modelled_us)


def last_turn(way: Way, turns: Mapping[str, int]) -> int:
    """The turn of a way: the turn of its last node."""
    return max(turns[node] for node in way.group.nodes)


class _Steps:
    def __init__(self, graph: Graph, states: States, ways: Iterable[CopyWay], chosen: Iterable[Copy]) -> None:
        by_place = {(each.value, each.source, each.target): each for each in ways}
        self.steps: list[Step] = []
        self.places: dict[str, Place] = {}
        self._graph, self._states = graph, states
        self._copies = {(each.value, each.target): by_place[each.value, each.source, each.target] for each in chosen}

    def add(self, way: Way) -> None:
        states = iter(way.reads) if isinstance(way.operation, Join) else None
        known = dict(way.reads)
        reads = tuple(
            (role, self.there(value, known.get(value, "") if states is None else next(states)[1]))
            for role, value in way.group.reads
        )
        writes = tuple(self.named(value, state) for value, state in way.writes)
        self.steps.append(Step(way.group.name, way.operation, reads, writes, way.candidate, way.time_us))

    def named(self, value: str, state: str) -> str:
        """The name of a value in a state. Constants have one state only."""
        if value in self._graph.constants:
            return value
        name = f"{value}@{state}" if len(self._states.all(value)) > 1 else value
        self.places[name] = value, state
        return name

    def there(self, value: str, state: str) -> str:
        """The name of a value in a state, after adding its copy if the choice has one."""
        name, copy = self.named(value, state), self._copies.pop((value, state), None)
        if copy is not None:
            source = self.named(value, copy.source)
            self.steps.append(Step(
                f"copy of {value}", copy.problem, (("x", source),), (name,), copy.candidate, copy.time_us
            ))  # fmt: skip
        return name
