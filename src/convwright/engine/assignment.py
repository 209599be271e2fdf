"""All that a run of a network needs, as data: the steps in their order, what each reads and writes, and why."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from convwright.core.candidate import Candidate
from convwright.core.finding import Interval
from convwright.core.record import Record
from convwright.core.tensor_spec import Layout, TensorSpec
from convwright.engine.ways import CopyWay, Way
from convwright.graph.choice import ChoiceProblem, Copy, JointChoice, Option, Place
from convwright.graph.graph import Graph
from convwright.graph.layouts import dense, layouts_of
from convwright.graph.operations import Operation


@dataclass(frozen=True, slots=True)
class Step(Record):
    """One operation. ``reads`` and ``writes`` name tensors: a constant by its name, any other by its value and layout.
    ``candidate`` is None for a view and for an operator of PyTorch's."""

    name: str
    operation: Operation
    reads: tuple[tuple[str, str], ...]
    writes: tuple[str, ...]
    candidate: Candidate | None
    time_us: Interval


@dataclass(frozen=True, slots=True)
class Assignment(Record):
    """``tensors`` are all that steps read and write, but for constants; ``inputs`` and ``outputs`` are some of them, in
    the order of the network's. ``modelled_us`` is the sum of all steps' times, ``greedy_us`` and ``uniform_us`` those
    of simpler choices."""

    tensors: dict[str, TensorSpec] = field(hash=False)
    steps: tuple[Step, ...]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    constants: dict[str, TensorSpec] = field(hash=False)
    modelled_us: float
    greedy_us: float | None = None
    uniform_us: float | None = None

    def last_uses(self) -> dict[str, int]:
        """The last step that needs each tensor; outputs are needed after all."""
        last = {
            name: number
            for number, step in enumerate(self.steps)
            for name in (*step.writes, *dict(step.reads).values())
        }
        return last | dict.fromkeys(self.outputs, len(self.steps))


def choice_problem(graph: Graph, ways: Iterable[Way], copies: Iterable[CopyWay]) -> ChoiceProblem:
    """What the joint choice decides, in its own words."""
    return ChoiceProblem(
        nodes=tuple(node.name for node in graph.nodes),
        options=tuple(
            Option(way.name, frozenset(way.group.nodes), way.reads, way.writes, way.time_us.value) for way in ways
        ),
        copies=tuple(
            Copy(each.value, each.problem.x.layout, each.problem.y.layout, max(each.time_us.value, 0.0))
            for each in copies
        ),
        given=tuple(ends(graph, graph.inputs)),
        wanted=tuple(ends(graph, graph.outputs)),
    )


def ends(graph: Graph, values: Iterable[str]) -> Iterable[Place]:
    """Inputs or outputs with the layouts that they have for the caller, each once; constants are not among them."""
    for value in dict.fromkeys(values):
        if value not in graph.constants:
            yield value, given_layout(graph.values[value])


def given_layout(spec: TensorSpec) -> Layout:
    """The layout of an input or an output. One that is in none is copied to one."""
    return spec.layout if spec.layout in layouts_of(spec) else Layout.NCHW


def assignment(
    graph: Graph, chosen: JointChoice, ways: Iterable[Way], copies: Iterable[CopyWay], **others: Any
) -> Assignment:
    """The steps of a joint choice. They run in the order of the graph's nodes, and each copy right before its first
    reader."""
    by_name, made = {way.name: way for way in ways}, _Steps(graph, copies, chosen.copies)
    place = {node.name: number for number, node in enumerate(graph.nodes)}
    for way in sorted((by_name[option.name] for option in chosen.options), key=lambda way: place[way.group.nodes[-1]]):
        made.add(way)
    outputs = tuple(made.end(value) for value in graph.outputs)
    inputs = tuple(_tensor(value, given_layout(graph.values[value]), graph) for value in graph.inputs)
    constants = {name: graph.values[name] for name in graph.constants}
    tensors = {name: dense(graph.values[value], layout) for name, (value, layout) in made.places.items()}
    tensors |= {name: dense(graph.values[value], given_layout(graph.values[value])) for name, value in zip(
        inputs, graph.inputs, strict=True
    )}  # fmt: skip
    modelled_us = sum(step.time_us.value for step in made.steps)
    return Assignment(tensors, tuple(made.steps), inputs, outputs, constants, modelled_us, **others)


def _tensor(value: str, layout: str, graph: Graph) -> str:
    """The name of a value in one layout."""
    if value in graph.constants:
        return value
    return f"{value}@{layout}" if len(layouts_of(graph.values[value])) > 1 else value


class _Steps:
    def __init__(self, graph: Graph, ways: Iterable[CopyWay], chosen: Iterable[Copy]) -> None:
        by_place = {(each.value, each.problem.x.layout, each.problem.y.layout): each for each in ways}
        self.steps: list[Step] = []
        self.places: dict[str, tuple[str, Layout]] = {}
        self._graph = graph
        self._copies = {
            (each.value, each.target): by_place[each.value, Layout(each.source), Layout(each.target)] for each in chosen
        }

    def add(self, way: Way) -> None:
        states = dict(way.reads)
        reads = tuple((role, self._there(value, states.get(value, Layout.NCHW))) for role, value in way.group.reads)
        writes = tuple(self._named(value, state) for value, state in way.writes)
        self.steps.append(Step(way.group.name, way.operation, reads, writes, way.candidate, way.time_us))

    def end(self, value: str) -> str:
        """An output in the layout that the caller expects."""
        return self._there(value, given_layout(self._graph.values[value]))

    def _named(self, value: str, state: str) -> str:
        name = _tensor(value, state, self._graph)
        if value not in self._graph.constants:
            self.places[name] = value, Layout(state)
        return name

    def _there(self, value: str, state: str) -> str:
        """A value in a layout, after it was copied there where that was chosen."""
        name, copy = self._named(value, state), self._copies.pop((value, state), None)
        if copy is not None:
            source = self._named(value, copy.problem.x.layout)
            self.steps.append(Step(
                f"copy of {value}", copy.problem, (("x", source),), (name,), copy.candidate, copy.time_us
            ))  # fmt: skip
        return name
