"""The ways to compute each group of nodes: for each layout of its operands what is fastest on a device, and how long
that takes."""

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
# Tensor cores multiply 16 bits along channels. From so many on, a convolution in channels first is taken to be so many
# times slower.
_CHANNELS, _IN_CHANNELS_FIRST = 8, 1.2
# A copy on a GPU takes so long at least.
_LAUNCH_US = 2.0


@dataclass(frozen=True, slots=True)
class Way:
    """One way to compute a group: ``operation`` has the layouts of its operands. ``candidate`` is None for a view, for
    an operator of PyTorch's, and for a problem that was not searched for yet."""

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
    """A copy of a value from one state to another. Where it was not searched for yet it has no candidate, and a time
    that is hardly too long."""

    value: str
    source: str
    target: str
    problem: CopyProblem
    candidate: Candidate | None
    time_us: Interval


class Timed:
    """What is fastest for each problem, asked of a source of times once, and what comes close to it."""

    def __init__(self, source: TimeSource) -> None:
        self._source, self._device = source, source.device
        self._known: dict[Problem, tuple[TimedCandidate, ...]] = {}
        self._foreign: dict[Foreign, tuple[TimedCandidate, ...]] = {}

    @property
    def on_gpu(self) -> bool:
        return self._device.kind == "cuda"

    def search(self, problems: Iterable[Problem], progress: Progress) -> None:
        """Find the best candidates of each problem."""
        order = [each for each in dict.fromkeys(problems) if each not in self._known]
        for problem, found in self._source.of_problems(order, progress):
            self._known[problem] = found

    def candidates(
        self, operation: Operation, like: Operation | None = None, times: float = 1.0
    ) -> tuple[TimedCandidate, ...]:
        """The candidates that are worth a way with their times, the fastest first. A problem that was not searched for
        has none yet, and takes so many ``times`` as long as the one that it is ``like``."""
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
        """Whether it was searched for, if it has to be."""
        return isinstance(operation, NO_PROBLEM) or operation in self._known

    def copying(self, copies: Iterable[CopyWay]) -> Iterator[CopyWay]:
        """Copies with what is known of them, without those that nothing computes. The time of a copy that was not
        searched for is that of the shortest that was timed, or longer if moving its bytes takes longer: at the device's
        peak, or at the rate of the fastest that was timed."""
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
    """A group's operation with its operands in some states, and which values it reads and writes in which.

    It is searched for at once where it is like no other. One on slices takes as long as the same on dense operands, at
    least, and one in channels first may be known to take longer than in channels last: until it was searched for, it
    counts as ``times`` as long as what it is ``like``, and it is searched for where it would be chosen even so."""

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
    """Every copy to another state that ways which read and write ``used`` may need."""
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
    """All operands in one layout, those that are read and those that are written in slices or not. A cast may
    change the layout as well, so that nothing else has to."""
    read_values = [value for _, value in group.reads if value not in graph.constants]
    written_values = () if isinstance(group.operation, Foreign | View) else group.writes  # those make their own output
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
                like = operation  # of the dense operands, which come first
                last = operation if layout is Layout.NHWC else last


def _slower_in_channels_first(operation: Operation) -> float | None:
    """How many times as long an operation takes on a GPU in channels first, at least; None where that is not known."""
    if isinstance(operation, PointwiseProblem) and not operation.row:
        return 1.0  # it moves as many bytes
    if isinstance(operation, ConvProblem) and operation.groups == 1 and min(operation.c, operation.k) >= _CHANNELS:
        return _IN_CHANNELS_FIRST if operation.dtype in (DType.FP16, DType.BF16) else None
    return None


def _places(values: Iterable[str], states: States) -> tuple[int | None, ...]:
    """None for no slice, and each place in the lists of the values' slices."""
    return None, *range(max((len(states.slices.get(value, ())) for value in values), default=0))


def _state(value: str, layout: Layout, place: int | None, states: States) -> State:
    sliced = () if place is None else states.sliced(value, layout)
    return sliced[place] if place is not None and place < len(sliced) else states.dense(value, layout)


def _ways_to_join(group: Group, states: States) -> Iterator[Possible]:
    """Nothing to do where all parts lie in a slice of the whole, or PyTorch's operator, which copies."""
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
    """Nothing to do where a part lies in its value's memory."""
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
    """The operation on operands in these states; None where it does not go."""
    if isinstance(operation, View):
        is_plain = all(state.slice is None and state.layout is Layout.NCHW for state in states.values())
        return operation if is_plain else None
    made = laid(operation, {role: state.spec for role, state in states.items()})
    if isinstance(made, Foreign) and not _lies_so(made):
        return None
    # What is added to a convolution lies as its output does, also where that is a slice: kernels read it so.
    added = states.get("residual") if isinstance(made, ConvProblem) else None
    return made if added is None or added.spec == made.operands[Role.RESIDUAL] else None


def _lies_so(operation: Foreign) -> bool:
    """Whether PyTorch's operator, given operands that lie so, gives results that do."""
    if all(spec.layout is Layout.NCHW for spec in (*operation.inputs, *operation.results)):
        return True  # or else it is copied
    results = compute(operation, [empty(spec, "meta") for spec in operation.inputs])
    return all(spec_of(result).strides == spec.strides for result, spec in zip(results, operation.results, strict=True))
