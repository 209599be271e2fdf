"""The states of a graph's values: dense in a layout, or in a slice of a larger value's memory.

A concatenated value may be written directly to its place in the whole, which saves a copy. A whole that is itself a
part of a larger one, or begins like it, lies in the larger one's memory. A part cut out of a value may be read in
place, and a value whose parts are all concatenated again lies where they do.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from convwright.core.kinds.copy import CopyProblem
from convwright.core.once import once
from convwright.core.tensor_spec import Layout, TensorSpec
from convwright.graph.graph import Graph, Node
from convwright.graph.layouts import dense, layouts_of
from convwright.graph.operations import Foreign, Join, View

# The most slices of a value that is part of several wholes.
_MOST_SLICES = 2


@dataclass(frozen=True, slots=True, order=True)
class Slice:
    """A part of a value: along one dimension, from ``start`` on."""

    whole: str
    dim: int
    start: int


@dataclass(frozen=True, slots=True)
class State:
    """The layout of a value. ``slice`` is its place in a larger value, ``offset_bytes`` the offset in that memory."""

    layout: Layout
    spec: TensorSpec
    slice: Slice | None = None
    offset_bytes: int = 0

    @property
    def name(self) -> str:
        """The name of this state in the joint choice.

        >>> from convwright.core.dtype import DType
        >>> State(Layout.NHWC, TensorSpec((1, 8), DType.FP32), Slice("cat", 1, 16)).name
        'nhwc in cat from 16'
        """
        part = self.slice
        return str(self.layout) if part is None else f"{self.layout} in {part.whole} from {part.start}"


class States:
    """The states of each value of a graph; ``sliced`` says whether slices are included."""

    def __init__(self, graph: Graph, *, sliced: bool = True) -> None:
        self._graph, self._sliced = graph, sliced

    def dense(self, value: str, layout: Layout) -> State:
        """Dense in this layout, or in the value's only layout."""
        spec = dense(self._graph.values[value], layout)
        return State(spec.layout if spec.layout in layouts_of(spec) else Layout.NCHW, spec)

    def sliced(self, value: str, layout: Layout) -> tuple[State, ...]:
        """In slices of larger values that have this layout."""
        return tuple(self.within(value, part, layout) for part in self.slices.get(value, ()))

    def within(self, value: str, part: Slice, layout: Layout) -> State:
        spec, whole = self._graph.values[value], dense(self._graph.values[part.whole], layout)
        offset = part.start * whole.strides[part.dim] * spec.dtype.nbytes
        lies = replace(spec, strides=whole.strides, alignment=_alignment(offset))
        return State(layout, lies, part, offset)

    def named(self, value: str, name: str) -> State:
        return self._by_name[value, name]

    def knows(self, value: str, name: str) -> bool:
        return (value, name) in self._by_name

    def all(self, value: str) -> tuple[State, ...]:
        return self._all[value]

    @once
    def _by_name(self) -> Mapping[tuple[str, str], State]:
        return {(value, state.name): state for value, states in self._all.items() for state in states}

    @once
    def _all(self) -> Mapping[str, tuple[State, ...]]:
        return {
            value: (
                *(self.dense(value, layout) for layout in layouts_of(spec)),
                *(state for layout in (Layout.NCHW, Layout.NHWC) for state in self.sliced(value, layout)),
            )
            for value, spec in self._graph.values.items()
        }

    @once
    def slices(self) -> Mapping[str, tuple[Slice, ...]]:
        """The possible slices of each value that is a part or has parts."""
        found: dict[str, tuple[Slice, ...]] = {}
        joins: list[Node] = []
        if not self._sliced:
            return found

        def add(value: str, places: Iterable[Slice]) -> None:
            found[value] = tuple(dict.fromkeys([*found.get(value, ()), *places]))[:_MOST_SLICES]

        for node in reversed([each for each in self._graph.nodes if isinstance(each.operation, Join)]):
            operation, (whole,), parts = node.operation, node.writes, [value for _, value in node.reads]
            assert isinstance(operation, Join)
            inside = [*found.get(whole, ()), *(each for join in joins for each in _begun_by(node, join, found))]
            places = tuple(dict.fromkeys(each for each in inside if each.dim == operation.dim))[:_MOST_SLICES]
            found[whole] = places or (Slice(whole, operation.dim, 0),)
            for value, start in zip(parts, operation.starts, strict=True):
                add(value, _shifted(found[whole], start))
            for value, start in self._put_together(node):
                add(value, _shifted(found[whole], start))
            joins.append(node)
        for value, cut in self.cuts.items():
            if not parts_within(cut, found.get(cut.whole, ())):
                add(cut.whole, [Slice(cut.whole, cut.dim, 0)])
            add(value, parts_within(cut, found[cut.whole]))
        return found

    @once
    def cuts(self) -> Mapping[str, Slice]:
        """The place of each value that is cut out of another. Values that PyTorch's operators or the caller allocate
        have memory of their own and are left out."""
        own = {
            value for node in self._graph.nodes if not isinstance(node.operation, Foreign | View)
            for value in node.writes
        }  # fmt: skip
        return {
            node.writes[0]: Slice(node.reads[0][1], *node.operation.part)
            for node in self._graph.nodes
            if isinstance(node.operation, CopyProblem) and node.operation.part and node.reads[0][1] in own
        }

    def _put_together(self, join: Node) -> Iterator[tuple[str, int]]:
        """Values whose parts are all consecutive in a concatenation, and where they start in it."""
        assert isinstance(join.operation, Join)
        dim, values, parts = join.operation.dim, self._graph.values, [value for _, value in join.reads]
        for first, start in enumerate(join.operation.starts):
            cut, end = self.cuts.get(parts[first]), 0
            for value in parts[first:]:
                if cut is None or self.cuts.get(value) != Slice(cut.whole, dim, end):
                    break
                end += values[value].shape[dim]
            if cut is not None and end == values[cut.whole].shape[dim]:
                yield cut.whole, start


def parts_within(cut: Slice, places: Iterable[Slice]) -> list[Slice]:
    """The slices of a part whose value lies in ``places``."""
    return [
        Slice(place.whole, cut.dim, place.start + cut.start)
        for place in places if place.dim == cut.dim or place.whole == cut.whole
    ]  # fmt: skip


def _shifted(places: Iterable[Slice], start: int) -> list[Slice]:
    return [replace(place, start=place.start + start) for place in places]


def _begun_by(node: Node, larger: Node, found: Mapping[str, tuple[Slice, ...]]) -> Iterator[Slice]:
    """Where the parts of ``node`` are consecutive in a larger concatenation."""
    assert isinstance(larger.operation, Join)
    parts, others = ([value for _, value in each.reads] for each in (node, larger))
    for first in range(len(others) - len(parts) + 1):
        if others[first : first + len(parts)] == parts:
            for place in found[larger.writes[0]]:
                yield replace(place, start=place.start + larger.operation.starts[first])


def _alignment(offset_bytes: int) -> int:
    return next(each for each in (16, 8, 4, 2, 1) if offset_bytes % each == 0)
