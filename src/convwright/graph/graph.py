"""A network without torch: nodes in an order in which they can run, and values."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from convwright.core.record import Record
from convwright.core.tensor_spec import TensorSpec
from convwright.errors import BadInput
from convwright.graph.operations import Operation


@dataclass(frozen=True, slots=True)
class Node(Record):
    """One operation on values. ``reads`` has a pair of role and value for each operand. ``writes`` names the values
    that it computes, in the order of the operation's outputs."""

    name: str
    operation: Operation
    reads: tuple[tuple[str, str], ...]
    writes: tuple[str, ...]

    @property
    def sources(self) -> tuple[str, ...]:
        """The values that it reads, each once."""
        return tuple(dict.fromkeys(value for _, value in self.reads))

    def reading(self, renamed: Mapping[str, str]) -> Node:
        """The same node with other values to read."""
        return replace(self, reads=tuple((role, renamed.get(value, value)) for role, value in self.reads))


@dataclass(frozen=True, slots=True)
class Graph(Record):
    """``values`` are all tensors by name. Inputs, constants and written values are disjoint. An output may be any of
    them, also repeatedly."""

    values: Mapping[str, TensorSpec] = field(hash=False)
    nodes: tuple[Node, ...]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    constants: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        known = [*self.inputs, *self.constants]
        _check_once(known)
        there = set(known)
        for node in self.nodes:
            self._check_node(node, there)
            there.update(node.writes)
        for value in (*known, *self.outputs):
            if value not in self.values or value not in there:
                raise BadInput(f"no node, input or constant of the graph is called {value!r}")

    def _check_node(self, node: Node, there: set[str]) -> None:
        operands, outputs = node.operation.operands, node.operation.outputs
        reads = [role for role, _ in node.reads]
        if sorted(reads) != sorted(str(role) for role in operands if role not in outputs):
            raise BadInput(f"{node.name} computes {node.operation.key}, which does not take {', '.join(reads)}")
        if len(node.writes) != len(outputs):
            raise BadInput(f"{node.name} has {len(outputs)} outputs, got {len(node.writes)} names for them")
        if late := [value for value in node.sources if value not in there]:
            raise BadInput(f"{node.name} reads {late[0]!r}, which nothing before it computes")
        _check_once([*node.writes, *there.intersection(node.writes)])
        by_role = {str(role): spec for role, spec in operands.items()}
        for role, value in (*node.reads, *zip(map(str, outputs), node.writes, strict=True)):
            spec, held = by_role[role], self.values.get(value)
            if held is None or (held.shape, held.dtype) != (spec.shape, spec.dtype):
                has = "nothing" if held is None else f"{held.dtype} {held.shape}"
                raise BadInput(f"`{role}` of {node.name} is {spec.dtype} {spec.shape}, and {value} is {has}")

    @property
    def writers(self) -> dict[str, Node]:
        """The node that computes each value."""
        return {value: node for node in self.nodes for value in node.writes}

    @property
    def readers(self) -> dict[str, tuple[Node, ...]]:
        """The nodes that read each value, each once. Values without readers are left out."""
        found: dict[str, list[Node]] = {}
        for node in self.nodes:
            for value in node.sources:
                found.setdefault(value, []).append(node)
        return {value: tuple(nodes) for value, nodes in found.items()}

    def with_nodes(self, nodes: Iterable[Node]) -> Graph:
        """The graph with other nodes, without nodes, constants and values that nothing needs any more."""
        return replace(self, nodes=tuple(nodes)).needed()

    def needed(self) -> Graph:
        """The graph without nodes, constants and values that no output needs."""
        wanted, kept = set(self.outputs), list[Node]()
        for node in reversed(self.nodes):
            if wanted.intersection(node.writes):
                kept.append(node)
                wanted.update(node.sources)
        written = {value for node in kept for value in node.writes}
        there = {*self.inputs, *wanted, *written}
        return Graph(
            {name: spec for name, spec in self.values.items() if name in there}, tuple(reversed(kept)),
            self.inputs, self.outputs, tuple(name for name in self.constants if name in wanted),
        )  # fmt: skip

    def __str__(self) -> str:
        return "\n".join(self._lines())

    def _lines(self) -> Iterator[str]:
        for name in self.inputs:
            yield f"{name} = input {_form(self.values[name])}"
        for node in self.nodes:
            read = ", ".join(f"{role}={value}" for role, value in node.reads)
            yield f"{', '.join(node.writes)} = {node.operation.key} ({read})"
        yield f"return {', '.join(self.outputs)}"


def _form(spec: TensorSpec) -> str:
    return f"{spec.dtype} {'x'.join(map(str, spec.shape))} {spec.layout}"


def _check_once(names: list[str]) -> None:
    if twice := [name for place, name in enumerate(names) if name in names[:place]]:
        raise BadInput(f"the graph has two values called {twice[0]!r}")
