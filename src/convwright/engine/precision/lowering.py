"""A network in other types: nodes store their results in chosen types, with casts between them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any

from torch import Tensor

from convwright.core.dtype import IN_PYTORCH, DType, one_of_dtypes
from convwright.core.kinds.copy import CopyProblem
from convwright.core.kinds.linear import LinearProblem
from convwright.core.kinds.pointwise import PointwiseProblem
from convwright.core.problem import ConvProblem
from convwright.core.record import Record
from convwright.core.tensor_spec import TensorSpec
from convwright.engine.export.foreign import compute
from convwright.engine.network import Network
from convwright.engine.passes.change import Changed
from convwright.errors import BadInput
from convwright.graph.graph import Graph, Node
from convwright.graph.groups import Product
from convwright.graph.layouts import dense
from convwright.graph.operations import Foreign, Join, Operation, View
from convwright.tensors import core_dtype, empty, torch_dtype


class Precision(StrEnum):
    """The precision of a network: a 16-bit type, TF32 for its fp32 layers, or a choice per layer under an error
    limit."""

    FP16 = "fp16"
    BF16 = "bf16"
    TF32 = "tf32"
    MIXED = "mixed"

    @classmethod
    def parse(cls, given: str) -> Precision:
        """Read a precision; ``half``, ``float16``, ``bfloat16`` and PyTorch's dtypes also work.

        >>> Precision.parse("half")
        <Precision.FP16: 'fp16'>
        """
        return one_of_dtypes(cls, "precision", given)

    @property
    def dtype(self) -> DType | None:
        """The type in which results are stored; None to keep each."""
        return {Precision.FP16: DType.FP16, Precision.BF16: DType.BF16}.get(self)


@dataclass(frozen=True, slots=True)
class Lowering(Record):
    """``dtypes`` maps nodes to the types of their results; other nodes keep theirs. ``tf32`` names the nodes that may
    use TF32; None follows PyTorch's flags."""

    dtypes: Mapping[str, DType] = field(default_factory=dict, hash=False)
    tf32: frozenset[str] | None = None

    @classmethod
    def uniform(cls, graph: Graph, precision: Precision) -> Lowering:
        """The same precision for all nodes."""
        if precision.dtype is None:
            return cls(tf32=frozenset(node.name for node in layers(graph)))
        return cls({node.name: precision.dtype for node in graph.nodes})

    @classmethod
    def of_layers(cls, graph: Graph, chosen: Mapping[str, Precision]) -> Lowering:
        """The precision of each layer in ``chosen``; other layers stay as they are. A node that is no layer is stored
        in the narrowest type that it reads: rounding to that type again loses no more than the first time."""
        products, stored = {node.name for node in layers(graph)}, dict[str, DType]()
        dtypes = dict[str, DType]()
        for node in graph.nodes:
            own = graph.values[node.writes[0]].dtype
            if node.name in products:
                dtype = chosen[node.name].dtype if node.name in chosen else None
            else:
                narrow = [stored[value] for value in node.sources if value in stored]
                dtype = max(narrow, key=lambda each: each.roundoff, default=None)
            if dtype is not None and own is DType.FP32:
                dtypes[node.name] = dtype
                stored |= dict.fromkeys(node.writes, dtype)
        return cls(dtypes, frozenset(name for name, each in chosen.items() if each is Precision.TF32))


def layers(graph: Graph) -> tuple[Node, ...]:
    """The nodes with weights, which have a precision of their own: convolutions and matrix products."""
    return tuple(node for node in graph.nodes if isinstance(node.operation, Product))


def lowered(network: Network, dtypes: Mapping[str, DType]) -> Changed:
    """Let nodes store their results in ``dtypes``, by name. Inputs and outputs keep their types.

    Expressions and copies read any type, so nothing is cast before them, and an output that nothing else reads is
    written in its own type. Constants are cast once. Casts that became redundant are removed.
    """
    made = _Lowered(network, dtypes)
    for node in network.graph.nodes:
        made.add(node)
    return made.changed()


class _Lowered:
    """Builds a graph. Values keep their names; a cast value also has its type in its name."""

    def __init__(self, network: Network, dtypes: Mapping[str, DType]) -> None:
        self._network, self._graph, self._dtypes = network, network.graph, dtypes
        self._values, self._held = dict(network.graph.values), dict[str, Tensor]()
        self._nodes, self._renamed, self._sentences = list[Node](), dict[str, str](), list[str]()
        self._read = set(network.graph.readers)

    def add(self, node: Node) -> None:
        node = node.reading(self._renamed)
        operation = self._retyped(node, self._dtype(node))
        if self._is_identity(operation) and not set(node.writes).intersection(self._graph.outputs):
            self._renamed |= dict(zip(node.writes, node.sources, strict=True))
            self._sentences.append(f"{node.name} no longer casts anything and is left out.")
            return
        wanted = {str(role): spec.dtype for role, spec in operation.operands.items()}
        reads = tuple((role, self._cast(value, wanted[role])) for role, value in node.reads)
        for value, role in zip(node.writes, operation.outputs, strict=True):
            self._values[value] = replace(self._values[value], dtype=wanted[str(role)])
        stored = self._values[node.writes[0]].dtype
        if stored is not self._graph.values[node.writes[0]].dtype:
            self._sentences.append(f"{node.name} is stored in {stored}.")
        self._nodes.append(Node(node.name, operation, reads, node.writes))

    def changed(self) -> Changed:
        outputs = tuple(self._cast(value, self._graph.values[value].dtype, last=True) for value in self._graph.outputs)
        constants = (*self._graph.constants, *self._held)
        graph = Graph(self._values, tuple(self._nodes), self._graph.inputs, outputs, constants).needed()
        return Changed(self._network.with_graph(graph, self._held), tuple(self._sentences))

    def _dtype(self, node: Node) -> DType:
        """The type of a node's results."""
        own, wanted = self._graph.values[node.writes[0]].dtype, self._dtypes.get(node.name)
        is_end = set(node.writes) <= set(self._graph.outputs) and not self._read.intersection(node.writes)
        is_free = isinstance(node.operation, PointwiseProblem | CopyProblem) and is_end
        return own if wanted is None or own not in IN_PYTORCH or is_free else wanted

    def _retyped(self, node: Node, dtype: DType) -> Operation:
        operation, lying = node.operation, {role: self._values[value].dtype for role, value in node.reads}
        if isinstance(operation, View):
            return View(*(_in(spec, lying["x"]) for spec in (operation.x, operation.y)))
        if isinstance(operation, PointwiseProblem):
            inputs = tuple((name, _in(spec, lying[name])) for name, spec in operation.inputs)
            return replace(operation, inputs=inputs, y=_in(operation.y, dtype))
        if isinstance(operation, CopyProblem):
            return replace(operation, x=_in(operation.x, lying["x"]), y=_in(operation.y, dtype))
        if dtype is self._graph.values[node.writes[0]].dtype:
            return operation
        return _foreign(operation, dtype) if isinstance(operation, Foreign) else _all_in(operation, dtype)

    def _is_identity(self, operation: Operation) -> bool:
        return isinstance(operation, CopyProblem) and operation.x.dtype is operation.y.dtype and not any(
            map(any, operation.margins)
        )  # fmt: skip

    def _cast(self, value: str, dtype: DType, *, last: bool = False) -> str:
        """The value in a type. An output keeps its layout."""
        spec, name = self._values[value], f"{value} as {dtype}"
        if spec.dtype is dtype:
            return value
        if name in self._values:
            return name
        self._values[name] = replace(self._graph.values[value] if last else dense(spec), dtype=dtype)
        if value in self._graph.constants:
            self._held[name] = self._network.constants[value].to(torch_dtype(dtype))
            return name
        problem = CopyProblem(dense(spec), _in(dense(spec), dtype))
        self._nodes.append(Node(name, problem, (("x", value),), (name,)))
        self._sentences.append(f"{value} is cast to {dtype}.")
        return name


def _in(spec: TensorSpec, dtype: DType) -> TensorSpec:
    return replace(spec, dtype=dtype)


def _all_in(operation: Operation, dtype: DType) -> Operation:
    """The operation on operands of a type; unchanged if nothing computes it in that type."""
    if isinstance(operation, Join):
        return Join(_every(operation.inputs, dtype), _in(operation.y, dtype), operation.dim)
    fields: dict[str, Any] = {"x": operation.x, "y": operation.y}  # type: ignore[union-attr]
    if isinstance(operation, ConvProblem | LinearProblem):
        fields["w"] = operation.w
    try:
        return replace(operation, **{name: _in(spec, dtype) for name, spec in fields.items()})  # type: ignore[type-var]
    except BadInput:
        return operation


def _foreign(operation: Foreign, dtype: DType) -> Foreign:
    """PyTorch's operator on tensors of a type, if its results have that type, too."""
    inputs, results = (_every(specs, dtype) for specs in (operation.inputs, operation.results))
    made = replace(operation, inputs=inputs, results=results)
    try:
        given = compute(made, [empty(spec, "meta") for spec in inputs])
    except (RuntimeError, NotImplementedError, TypeError, ValueError):  # the operator does not support that type
        return operation
    return made if [core_dtype(each.dtype) for each in given] == [spec.dtype for spec in results] else operation


def _every(specs: Iterable[TensorSpec], dtype: DType) -> tuple[TensorSpec, ...]:
    """The specs in a type, integers unchanged."""
    return tuple(_in(spec, dtype) if spec.dtype in IN_PYTORCH else spec for spec in specs)
