"""The ways to compute each group of nodes: for each layout of its operands, the fastest candidates and their times."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

from convwright.core.candidate import Candidate
from convwright.core.direction import Role
from convwright.core.dtype import DType
from convwright.core.finding import Interval
from convwright.core.kinds.copy import CopyProblem
from convwright.core.kinds.pointwise import PointwiseProblem
from convwright.core.kinds.problem import Problem
from convwright.core.problem import ConvProblem
from convwright.core.tensor_spec import Layout
from convwright.engine.export.foreign import compute, concatenation
from convwright.engine.planning.times import TimedCandidate, TimeSource, at_least
from convwright.graph.choice import Place
from convwright.graph.graph import Graph
from convwright.graph.groups import Group
from convwright.graph.layouts import laid, layouts_of
from convwright.graph.operations import NO_PROBLEM, NOTHING_RUNS, Foreign, Join, Operation, Part, View
from convwright.graph.states import State, States, parts_within
from convwright.tensors import empty, spec_of
from convwright.tuning.trials.search_input import Progress

_NOTHING = Interval(0.0, 0.0, 0.0)
# Tensor cores multiply 16-bit numbers along channels. From _CHANNELS on, channels first is assumed to be slower by this
# factor.
_CHANNELS, _IN_CHANNELS_FIRST = 8, 1.2
# The least time of a copy on a GPU.
_LAUNCH_US = 2.0


@dataclass(frozen=True, slots=True)
class Way:
    """One way to compute a group. ``operation`` has the layouts of its operands. ``candidate`` is None for a view, for
    an operator of PyTorch, and for a problem that was not searched for yet."""

    group: Group
    operation: Operation
    reads: tuple[Place, ...]
    writes: tuple[Place, ...]
    candidate: Candidate | None
    time_us: Interval

    @property
    def name(self) -> str:
        layouts = ",".join(f"{value}@{state}" for value, state in (*self.reads, *self.writes))
        return f"{self.group.name} {layouts} {'' if self.candidate is None else self.candidate.id}"


@dataclass(frozen=True, slots=True)
class CopyWay:
    """A copy of a value from one state to another. Before a search it has no candidate, and a low estimate as its
    time."""

    value: str
    source: str
    target: str
    problem: CopyProblem
    candidate: Candidate | None
    time_us: Interval


class Timed:
    """The fastest candidates for each problem, and close ones, from a source of times that is asked once."""

    def __init__(self, source: TimeSource) -> None:
        self._source, self._device = source, source.device
        self._known: dict[Problem, tuple[TimedCandidate, ...]] = {}
        self._foreign: dict[Foreign, tuple[TimedCandidate, ...]] = {}

    @property
    def on_gpu(self) -> bool:
        return self._device.kind == "cuda"

    def search(self, problems: Iterable[Problem], progress: Progress) -> None:
        """Find the best candidates for each problem."""
        order = [each for each in dict.fromkeys(problems) if each not in self._known]
        for problem, found in self._source.of_problems(order, progress):
            self._known[problem] = found

    def candidates(
        self, operation: Operation, like: Operation | None = None, times: float = 1.0
    ) -> tuple[TimedCandidate, ...]:
        """The candidates worth considering with their times, fastest first. A problem that was not searched for yet is
        assumed to take ``times`` as long as ``like``."""
        if isinstance(operation, NOTHING_RUNS):
            return ((None, _NOTHING),)
        if isinstance(operation, Foreign):
            if operation not in self._foreign:
                time_us = self._source.of_operator(operation)
                self._foreign[operation] = () if time_us is None else ((None, time_us),)
            return self._foreign[operation]
        if like is not None and operation not in self._known:
            return tuple(
                (None, time_us.times(Interval(times, times, times))) for _, time_us in self.candidates(like)[:1]
            )
        return self._known.get(operation, ())

    def knows(self, operation: Operation) -> bool:
        """Whether the operation was searched for, or needs no search."""
        return isinstance(operation, NO_PROBLEM) or operation in self._known

    def copying(self, copies: Iterable[CopyWay]) -> Iterator[CopyWay]:
        """Copies with their known times, without those that nothing computes. A copy that was not searched for gets the
        shortest time of any timed copy, or the time to move its bytes if longer: at the device's peak, or at the
        fastest rate timed."""
        known = [(each.bytes, found[0][1].value)
                 for each, found in self._known.items() if isinstance(each, CopyProblem) and found]  # fmt: skip
        at_peak = 1 / self._device.bandwidth_bytes_per_us if self._device.bandwidth_bytes_per_us else 0.0
        rate = max(min((time_us / max(moved, 1) for moved, time_us in known), default=0.0), at_peak)
        shortest = min((time_us for _, time_us in known), default=_LAUNCH_US)
        for way in copies:
            if way.problem not in self._known:
                yield replace(way, time_us=at_least(max(way.problem.bytes * rate, shortest)))
            elif found := self._known[way.problem]:
                yield replace(way, candidate=found[0][0], time_us=found[0][1])


@dataclass(frozen=True, slots=True)
class Possible:
    """A group's operation with operands in certain states, and the values that it reads and writes in each.

    One that is ``like`` no other is searched at once. Any other is assumed to take ``times`` as long as the one that it
    is like, and is searched only if it would be chosen at that time: an operation on slices takes at least as long as
    on dense operands, and channels first may be known to be slower than channels last."""

    group: Group
    operation: Operation
    reads: tuple[Place, ...]
    writes: tuple[Place, ...]
    like: Operation | None = None
    times: float = 1.0

    def ways(self, timed: Timed) -> Iterator[Way]:
        for candidate, time_us in timed.candidates(self.operation, self.like, self.times):
            yield Way(self.group, self.operation, self.reads, self.writes, candidate, time_us)


def possible(graph: Graph, groups: Iterable[Group], states: States, *, on_gpu: bool) -> tuple[Possible, ...]:
    """Every group in every layout."""
    made: dict[Any, Possible] = {}
    for group in groups:
        joins = isinstance(group.operation, Join)
        ways = _ways_to_join(group, states) if joins else _ways_to_lie(group, graph, states, on_gpu=on_gpu)
        for each in (*ways, *_ways_to_cut(group, states)):
            made.setdefault((group, each.operation, each.reads, each.writes), each)
    return tuple(made.values())


def copies(used: Iterable[Place], states: States) -> tuple[CopyWay, ...]:
    """Every copy between states that ways which read and write ``used`` may need."""
    by_value: dict[str, list[str]] = {}
    for value, state in dict.fromkeys(used):
        by_value.setdefault(value, []).append(state)
    return tuple(
        CopyWay(value, source, target, _copy(value, source, target, states), None, _NOTHING)
        for value, both in by_value.items() for source in both for target in both if source != target
    )  # fmt: skip


def _copy(value: str, source: str, target: str, states: States) -> CopyProblem:
    return CopyProblem(states.named(value, source).spec, states.named(value, target).spec)


def _ways_to_lie(group: Group, graph: Graph, states: States, *, on_gpu: bool) -> Iterator[Possible]:
    """All operands in one layout, read and written ones in slices or not. A cast may also change the layout, which
    saves a copy."""
    read_values = [value for _, value in group.reads if value not in graph.constants]
    written_values = () if isinstance(group.operation, Foreign | View) else group.writes  # those allocate their output
    reading, writing = (_places(values, states) for values in (read_values, written_values))
    layouts = (Layout.NHWC, Layout.NCHW)
    pairs = [*zip(layouts, layouts, strict=True)]
    if isinstance(group.operation, CopyProblem) and group.operation.x.dtype is not group.operation.y.dtype:
        pairs = [*product(layouts, layouts)]
    slower, last = _slower_in_channels_first(group.operation) if on_gpu else None, None
    for layout, other in pairs:
        like, times = (last, slower) if slower is not None and last is not None else (None, 1.0)
        for read, written in product(reading, writing):
            given = {role: _state(value, layout, None if value in graph.constants else read, states)
                     for role, value in group.reads}  # fmt: skip
            made = [_state(value, other, written, states) for value in group.writes]
            roles = given | dict(zip(map(str, group.operation.outputs), made, strict=True))
            operation = _lying(group.operation, roles)
            if operation is None:
                continue
            reads = {value: given[role].name for role, value in group.reads if value not in graph.constants}
            writes = tuple((value, state.name) for value, state in zip(group.writes, made, strict=True))
            yield Possible(group, operation, tuple(reads.items()), writes, like, times)
            if like is None and not isinstance(operation, NO_PROBLEM):
                like = operation  # the dense operands, which come first
                last = operation if layout is Layout.NHWC else last


def _slower_in_channels_first(operation: Operation) -> float | None:
    """The least slowdown of an operation on a GPU in channels first; None if unknown."""
    if isinstance(operation, PointwiseProblem) and not operation.row:
        return 1.0  # it moves the same number of bytes
    if isinstance(operation, ConvProblem) and operation.groups == 1 and min(operation.c, operation.k) >= _CHANNELS:
        return _IN_CHANNELS_FIRST if operation.dtype in (DType.FP16, DType.BF16) else None
    return None


def _places(values: Iterable[str], states: States) -> tuple[int | None, ...]:
    """None for no slice, then each index into the values' lists of slices."""
    return None, *range(max((len(states.slices.get(value, ())) for value in values), default=0))


def _state(value: str, layout: Layout, place: int | None, states: States) -> State:
    sliced = () if place is None else states.sliced(value, layout)
    return sliced[place] if place is not None and place < len(sliced) else states.dense(value, layout)


def _ways_to_join(group: Group, states: States) -> Iterator[Possible]:
    """No work if all parts lie in slices of the whole; otherwise PyTorch's operator, which copies."""
    operation, (whole,), parts = group.operation, group.writes, [value for _, value in group.reads]
    assert isinstance(operation, Join)
    for layout in layouts_of(operation.y):
        for place in states.slices.get(whole, ()):
            reads = [
                (value, states.within(value, replace(place, start=place.start + start), layout).name)
                for value, start in zip(parts, operation.starts, strict=True)
            ]
            if all(states.knows(*each) for each in reads):
                yield Possible(group, operation, tuple(reads), ((whole, states.within(whole, place, layout).name),))
        given, made = [states.dense(value, layout) for value in parts], states.dense(whole, layout)
        copying = concatenation([state.spec for state in given], made.spec, operation.dim)
        if _lies_so(copying):
            lying = tuple((value, state.name) for value, state in dict(zip(parts, given, strict=True)).items())
            yield Possible(group, copying, lying, ((whole, made.name),))


def _ways_to_cut(group: Group, states: States) -> Iterator[Possible]:
    """No work if a part lies in its value's memory."""
    operation, cut = group.operation, states.cuts.get(group.writes[0])
    if cut is None or not isinstance(operation, CopyProblem):
        return
    (part,), value = group.writes, cut.whole
    for layout, place in product((Layout.NCHW, Layout.NHWC), states.slices.get(value, ())):
        for there in parts_within(cut, [place]):
            given, made = states.within(value, place, layout), states.within(part, there, layout)
            if states.knows(part, made.name):
                nothing = Part(operation.x, operation.y, cut.dim, cut.start)
                yield Possible(group, nothing, ((value, given.name),), ((part, made.name),))


def _lying(operation: Operation, states: Mapping[str, State]) -> Operation | None:
    """The operation on operands in these states; None if impossible."""
    if isinstance(operation, View):
        is_plain = all(state.slice is None and state.layout is Layout.NCHW for state in states.values())
        return operation if is_plain else None
    made = laid(operation, {role: state.spec for role, state in states.items()})
    if isinstance(made, Foreign) and not _lies_so(made):
        return None
    # A convolution's residual has the layout of its output, even in a slice: kernels read it that way.
    added = states.get("residual") if isinstance(made, ConvProblem) else None
    return made if added is None or added.spec == made.operands[Role.RESIDUAL] else None


def _lies_so(operation: Foreign) -> bool:
    """Whether PyTorch's operator keeps this layout of its operands in its results."""
    if all(spec.layout is Layout.NCHW for spec in (*operation.inputs, *operation.results)):
        return True  # otherwise its result is copied
    results = compute(operation, [empty(spec, "meta") for spec in operation.inputs])
    return all(spec_of(result).strides == spec.strides for result, spec in zip(results, operation.results, strict=True))
