"""Builds a graph: values for the nodes of torch.export, and nodes with operations."""

from __future__ import annotations

import operator
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from typing import Any

from torch import Tensor

from convwright.core.dtype import DType
from convwright.core.kinds.expression import Expression
from convwright.core.kinds.pointwise import PointwiseProblem
from convwright.core.tensor_spec import TensorSpec
from convwright.engine.export.foreign import permutation
from convwright.engine.export.order import Order, in_order, taken
from convwright.engine.network import Network
from convwright.errors import BadInput
from convwright.graph.graph import Graph, Node
from convwright.graph.layouts import dense
from convwright.graph.operations import Operation, View
from convwright.tensors import core_dtype


class Unknown(Exception):
    """The reason why no graph can hold an operator."""


class Builder:
    """Builds a graph while the nodes of torch.export are read in order, and records the value of each node.

    Values between nodes are dense and in the order of their dimensions. Planning chooses their layouts later.
    """

    def __init__(self) -> None:
        self.values: dict[str, TensorSpec] = {}
        self.held: dict[str, Tensor] = {}
        self._nodes: dict[Node, None] = {}  # in their order
        self._inputs: list[str] = []
        self._outputs: tuple[str, ...] = ()
        self._names: dict[Any, str] = {}
        self._permuted: dict[Any, tuple[str, Order]] = {}
        self._derived: set[str] = set()
        self._parts: dict[Any, list[tuple[str, Order]]] = {}
        self._called: dict[Any, str] = {}
        self._taken: dict[str, int] = {}
        self._sources: dict[str, set[str]] = {}
        self.fixed: set[str] = set()
        """The tensors of the model whose numbers this graph holds, in arguments or in what follows from them."""

    def name(self, node: Any) -> str:
        """The graph's name for a node: its layer, with the operator added if the layer is no leaf module."""
        if node not in self._called:
            path, is_leaf = _layer(node)
            called = str(getattr(node.target, "name", lambda: node.name)()).removeprefix("aten::").partition(".")[0]
            wanted = path if path and is_leaf else ".".join(filter(None, (path, called.strip("_"))))
            taken = self._taken.get(wanted, 0)
            self._taken[wanted] = taken + 1
            self._called[node] = wanted if not taken else f"{wanted}:{taken + 1}"
        return self._called[node]

    def constant(self, node: Any, name: str, tensor: Tensor, *, is_weight: bool = True) -> None:
        """A tensor of the model under its own name. A dtype that no problem has is an error only once it is read."""
        self.held[name], self._names[node] = tensor, name
        if not is_weight:
            self._sources[name] = set()
        try:
            self.values[name] = TensorSpec(tuple(tensor.shape), core_dtype(tensor.dtype))
        except BadInput:
            return

    def computed(self, node: Any, tensor: Tensor) -> None:
        """The result of a node that is computed now."""
        name = self.name(node)
        self.constant(node, name, tensor)
        read = [each for each in node.all_input_nodes if self.tensor(each) is not None]
        self._sources[name] = set[str]().union(*map(self._sources_of, read))
        if name in self.values:
            self.fixed |= self._sources[name]

    def number(self, node: Any, otherwise: Any) -> Any:
        """A constant of a dtype that no graph holds, such as an index, which becomes part of an operator's arguments;
        ``otherwise`` for any other node."""
        tensor = self.tensor(node)
        if tensor is None or self._names[node] in self.values:
            return otherwise
        self.fixed |= self._sources_of(node)
        return tensor

    def is_known(self, node: Any) -> bool:
        """Whether a node is a constant that follows from no weight."""
        return self.tensor(node) is not None and not self._sources_of(node)

    def _sources_of(self, node: Any) -> set[str]:
        name = self._names[node]
        return self._sources.get(name, {name})

    def tensor(self, node: Any) -> Tensor | None:
        """The constant that a node refers to, else None."""
        return self.held.get(self._names.get(node, ""))

    def input(self, node: Any, spec: TensorSpec) -> None:
        self.values[node.name], self._names[node] = spec, node.name
        self._inputs.append(node.name)

    def outputs(self, nodes: Iterable[Any], specs: Sequence[TensorSpec]) -> None:
        """The outputs of the model and their specs. An output that is an input or a weight keeps its own spec."""
        self._outputs = tuple(self.value(node) for node in nodes)
        fixed = {*self._inputs, *self.held}
        self.values |= {name: spec for name, spec in zip(self._outputs, specs, strict=True) if name not in fixed}

    def value(self, node: Any) -> str:
        """The value of a node, copied if its dimensions are permuted. A dtype that no problem has is refused."""
        if node not in self._names and node in self._permuted:
            self._names[node] = self.reordered(*self._permuted[node])
        name = self._names.get(node)
        if name is None or name not in self.values:
            raise Unknown(f"{node} is not a tensor of {', '.join(DType)}")
        return name

    def reordered(self, value: str, order: Order) -> str:
        """The value with permuted dimensions: copied, unless the memory stays the same."""
        spec, name = self.spec(value), f"{value} permuted {','.join(map(str, order))}"
        moving = [dim for dim in order if spec.shape[dim] > 1]
        if moving == sorted(moving):
            return self.view(name, value, taken(spec.shape, order))
        return self.compute(name, permutation(spec, order), {"x0": value})

    def permuted(self, node: Any) -> tuple[str, Order]:
        """A value, and the order in which the node has its dimensions. Copies nothing."""
        if node in self._permuted:
            return self._permuted[node]
        value = self.value(node)
        return value, in_order(len(self.spec(value).shape))

    def is_constant(self, value: str) -> bool:
        """Whether a value depends on weights alone."""
        return value in self.held or value in self._derived

    def spec(self, value: str) -> TensorSpec:
        return self.values[value]

    def result(self, node: Any) -> TensorSpec:
        """The spec of a node's result."""
        (spec,) = self.results(node)
        return spec

    def results(self, node: Any) -> tuple[TensorSpec, ...]:
        """The specs of a node with several results, up to the last one that is read."""
        made = node.meta["val"]
        several = made[: _read_of(node)] if isinstance(made, tuple | list) else (made,)
        return tuple(map(_spec_of, several))

    def compute(self, name: str, operation: Operation, reads: Mapping[str, str]) -> str:
        """Add a node with one output, named after itself; an equal node is reused."""
        node = Node(name, operation, tuple(reads.items()), (name,))
        if node in self._nodes:
            return name
        self.values[name] = next(
            spec for role, spec in operation.operands.items() if str(role) == str(operation.outputs[-1])
        )
        self._add(node)
        return name

    def compute_all(self, node: Any, operation: Operation, reads: Mapping[str, str], names: tuple[str, ...]) -> None:
        """Add a node with several outputs, which ``getitem`` nodes take apart."""
        specs = [operation.operands[role] for role in operation.outputs]
        self.values |= dict(zip(names, specs, strict=True))
        self._add(Node(self.name(node), operation, tuple(reads.items()), names))
        self.has_parts(node, [(name, in_order(len(self.spec(name).shape))) for name in names])

    def _add(self, node: Node) -> None:
        self._nodes[node] = None
        if node.reads and all(map(self.is_constant, node.sources)):
            self._derived.update(node.writes)

    def compute_expression(
        self,
        name: str,
        tree: Expression,
        operands: Mapping[str, str],
        y: TensorSpec,
        row: tuple[int, ...] = (),
        groups: int = 1,
    ) -> str:
        """Add an expression over values, which get as many dimensions as the output has."""
        rank, reads = len(y.shape), dict[str, str]()
        for operand, value in operands.items():
            shape = self.spec(value).shape
            reads[operand] = self.view(f"{name}_{operand}", value, (*(1,) * (rank - len(shape)), *shape))
        inputs = tuple((operand, dense(self.spec(value))) for operand, value in reads.items())
        problem = PointwiseProblem(tree, inputs, TensorSpec(y.shape, y.dtype), row, groups)
        return self.compute(name, problem, {operand: reads[operand] for operand, _ in problem.inputs})

    def is_(self, node: Any, value: str) -> bool:
        """Map a node to a value. Returns True: the translation succeeded."""
        self._names[node] = value
        return True

    def is_permuted(self, node: Any, value: str, order: Order) -> bool:
        """Map a node to a value with permuted dimensions."""
        if order == in_order(len(order)):
            return self.is_(node, value)
        self._permuted[node] = value, order
        return True

    def has_parts(self, node: Any, parts: Iterable[tuple[str, Order]]) -> bool:
        """Map a node with several results to values with permuted dimensions."""
        self._parts[node] = list(parts)
        return True

    def part(self, node: Any, whole: Any, place: int) -> bool:
        """Map a node to one output of another node."""
        return place < len(self._parts.get(whole, ())) and self.is_permuted(node, *self._parts[whole][place])

    def view(self, name: str, value: str, shape: tuple[int, ...]) -> str:
        """The value reshaped."""
        spec = self.values[value]
        if spec.shape == shape:
            return value
        return self.compute(name, View(spec, TensorSpec(shape, spec.dtype)), {"x": value})

    def without(self, name: str, value: str, order: Order, dims: Container[int]) -> tuple[str, Order]:
        """The value without ``dims``, all of size 1, and the order of the remaining dimensions."""
        left, shape = [dim for dim in order if dim not in dims], self.spec(value).shape
        kept = sorted(left)
        return self.view(name, value, tuple(shape[dim] for dim in kept)), tuple(map(kept.index, left))

    def network(self) -> Network:
        constants = tuple(name for name in self.held if name in self.values)
        graph = Graph(self.values, tuple(self._nodes), tuple(self._inputs), self._outputs, constants).needed()
        return Network(graph, {name: self.held[name] for name in graph.constants})


def per_channel(spec: TensorSpec) -> tuple[int, ...]:
    """The shape of one number per channel, broadcast against ``spec``."""
    return (1, spec.shape[1], *(1 for _ in spec.shape[2:]))


def _read_of(node: Any) -> int | None:
    """How many results of a node are read, counted up to the last one; None if one node reads all."""
    reading = [user for user in node.users if user.users]
    if any(user.target is not operator.getitem for user in reading):
        return None
    return max((user.args[1] + 1 for user in reading), default=0)


def _spec_of(made: Any) -> TensorSpec:
    try:
        shape, dtype = tuple(map(int, made.shape)), made.dtype
    except (AttributeError, TypeError):
        raise Unknown(f"it gives {made}, which is not a tensor") from None
    try:
        return TensorSpec(shape, core_dtype(dtype))
    except BadInput:
        given = str(dtype).removeprefix("torch.")
        raise Unknown(f"it gives a tensor of {given}, and a network holds {', '.join(DType)} only") from None


def _layer(node: Any) -> tuple[str, bool]:
    """The path of the innermost module of a node, and whether that is one of PyTorch's own layers."""
    stack = [*node.meta.get("nn_module_stack", {}).values()]
    if not stack:
        return "", False
    path, kind = stack[-1]
    kind = kind if isinstance(kind, str) else f"{kind.__module__}.{kind.__qualname__}"
    is_leaf = kind.startswith("torch.nn.modules.") and not kind.startswith("torch.nn.modules.container.")
    return path.removeprefix("L['self']").removeprefix("."), is_leaf


# Translates a node of torch.export into nodes of the graph; False if only PyTorch's operator can compute it.
Translation = Callable[[Builder, Any], bool]
