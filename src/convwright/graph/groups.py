"""Groups of nodes that one operation can compute: expressions merged into one or into a convolution's epilogue, and row
reductions merged with what follows them.

A group has one output, and nothing outside reads its inner values, so groups that cover a graph form no cycle.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from convwright.core.direction import Direction
from convwright.core.epilogue import Activation
from convwright.core.kinds.expression import Apply, Cast, Expression, Operand
from convwright.core.kinds.linear import LinearProblem
from convwright.core.kinds.pointwise import OPERAND_NAMES, PointwiseProblem
from convwright.core.problem import ConvProblem
from convwright.core.record import Record
from convwright.errors import BadInput
from convwright.graph.graph import Graph, Node
from convwright.graph.layouts import dense
from convwright.graph.operations import Operation

# At most so many groups for one output, and operands in one group: a kernel reads each operand from memory.
_MOST_GROUPS, _MOST_OPERANDS = 32, 8
Product = ConvProblem | LinearProblem
_Around = tuple[Mapping[str, Node], Mapping[str, tuple[Node, ...]]]  # writers and readers of each value


@dataclass(frozen=True, slots=True)
class Group(Record):
    """One operation that replaces ``nodes``, which are in the graph's order."""

    nodes: tuple[str, ...]
    operation: Operation
    reads: tuple[tuple[str, str], ...]
    writes: tuple[str, ...]

    @property
    def name(self) -> str:
        return "+".join(self.nodes)


def groups(graph: Graph) -> tuple[Group, ...]:
    """Every node alone, and every possible merge of a node with the nodes before it."""
    around = graph.writers, graph.readers
    place = {node.name: number for number, node in enumerate(graph.nodes)}
    return tuple(group for node in graph.nodes for group in _ending_at(node, graph, around, place))


def largest(groups: Sequence[Group], graph: Graph) -> tuple[Group, ...]:
    """The groups that are in no larger group with the same output, if a network of these needs them.

    A smaller one gains nothing: it, followed by the rest, is one of the ways to compute the larger.
    """
    by_output: dict[str, list[Group]] = {}
    for group in groups:
        by_output.setdefault(group.writes[0], []).append(group)
    by_value = {value: group.writes[0] for group in groups for value in group.writes}
    found: dict[Group, None] = {}
    waiting, seen = list(graph.outputs), set[str]()
    while waiting:
        output = by_value.get(waiting.pop())
        if output is None or output in seen:
            continue
        seen.add(output)
        for group in by_output[output]:
            if not any(set(group.nodes) < set(other.nodes) for other in by_output[output]):
                found[group] = None
                waiting += [value for _, value in group.reads]
    return tuple(group for group in groups if group in found)


def inside(groups: Iterable[Group], larger: Iterable[Group]) -> tuple[Group, ...]:
    """The groups that contain only some nodes of one of the ``larger``."""
    wholes = [set(group.nodes) for group in larger]
    return tuple(group for group in groups if any(set(group.nodes) < nodes for nodes in wholes))


def _ending_at(node: Node, graph: Graph, around: _Around, place: Mapping[str, int]) -> Iterator[Group]:
    yield Group((node.name,), node.operation, node.reads, node.writes)
    if not isinstance(node.operation, PointwiseProblem) or node.operation.row:
        return
    for nodes in _sets(node, graph, *around):
        merged = _merged(sorted(nodes, key=lambda each: place[each.name]), node, graph)
        if merged is not None:
            yield merged


def _sets(
    root: Node, graph: Graph, writers: Mapping[str, Node], readers: Mapping[str, tuple[Node, ...]]
) -> list[frozenset[Node]]:
    """Sets of nodes that end at ``root`` with no other value read outside, smaller sets first."""
    found: dict[frozenset[Node], None] = {}
    waiting = [frozenset({root})]
    while waiting and len(found) < _MOST_GROUPS:
        nodes = waiting.pop(0)
        merging = [node for node in nodes if isinstance(node.operation, PointwiseProblem) and not _reduces(node)]
        for value in dict.fromkeys(value for node in merging for value in node.sources):
            writer = writers.get(value)
            if writer is None or writer in nodes or not _may_join(writer, nodes):
                continue
            if value not in graph.outputs and set(readers[value]) <= nodes:
                larger = nodes | {writer}
                if larger not in found:
                    found[larger] = None
                    waiting.append(larger)
    return list(found)[:_MOST_GROUPS]


def _may_join(node: Node, nodes: frozenset[Node]) -> bool:
    if any(map(_is_only_one, nodes)) and _is_only_one(node):
        return False
    return isinstance(node.operation, PointwiseProblem) or _is_bare(node.operation)


def _is_only_one(node: Node) -> bool:
    """Whether a group has at most one such node: a product, or a row reduction."""
    return isinstance(node.operation, Product) or _reduces(node)


def _reduces(node: Node) -> bool:
    return isinstance(node.operation, PointwiseProblem) and bool(node.operation.row)


def _is_bare(operation: Operation) -> bool:
    """Whether an activation and a residual can still be fused into an operation."""
    if not isinstance(operation, Product):
        return False
    forward = not isinstance(operation, ConvProblem) or operation.direction is Direction.FORWARD
    epilogue = operation.epilogue
    return forward and epilogue.activation is Activation.NONE and not (epilogue.residual or epilogue.accumulate)


def _merged(nodes: list[Node], root: Node, graph: Graph) -> Group | None:
    product = next((node for node in nodes if isinstance(node.operation, Product)), None)
    leaves: dict[str, str] = {}
    tree = _tree(root, {node.writes[0]: node for node in nodes if node is not product}, leaves)
    if tree is None:
        return None
    names = tuple(node.name for node in nodes)
    assert isinstance(root.operation, PointwiseProblem)
    if product is not None:
        return _with_epilogue(names, product, tree, leaves, root, graph)
    inputs = tuple((name, dense(graph.values[value])) for value, name in leaves.items())
    rows = [each for each in (node.operation for node in nodes) if isinstance(each, PointwiseProblem) and each.row]
    try:
        problem = PointwiseProblem(tree, inputs, root.operation.y, *((rows[0].row, rows[0].groups) if rows else ()))
    except BadInput:
        return None
    if rows and problem.shape != rows[0].shape:
        return None  # it would be reduced again for each element that it is broadcast to
    by_name = {name: value for value, name in leaves.items()}
    reads = tuple((name, by_name[name]) for name, _ in problem.inputs)
    return Group(names, problem, reads, root.writes)


def _tree(node: Node, inside: Mapping[str, Node], leaves: dict[str, str]) -> Expression | None:
    """A node's result as an expression of outside values, which get names in ``leaves``."""
    assert isinstance(node.operation, PointwiseProblem)
    reads = dict(node.reads)
    arguments: dict[str, Expression] = {}
    for role, value in reads.items():
        if value in inside and inside[value] is not node:
            inner = _tree(inside[value], inside, leaves)
            if inner is None:
                return None
            arguments[role] = inner
        else:
            if value not in leaves and len(leaves) == _MOST_OPERANDS:
                return None
            arguments[role] = Operand(leaves.setdefault(value, OPERAND_NAMES[len(leaves)]))
    return _replaced(node.operation.expression, arguments)


def _replaced(tree: Expression, arguments: Mapping[str, Expression]) -> Expression:
    if isinstance(tree, Operand):
        return arguments[tree.name]
    if isinstance(tree, Apply):
        return Apply(tree.operator, tuple(_replaced(each, arguments) for each in tree.arguments))
    return Cast(tree.dtype, _replaced(tree.argument, arguments)) if isinstance(tree, Cast) else tree


def _with_epilogue(
    names: tuple[str, ...], product: Node, tree: Expression, leaves: Mapping[str, str], root: Node, graph: Graph
) -> Group | None:
    """The product with an activation, a residual or both, if the expression consists only of these."""
    problem, value = product.operation, product.writes[0]
    assert isinstance(problem, Product)
    assert isinstance(root.operation, PointwiseProblem)
    activation = Activation.NONE
    if isinstance(tree, Apply) and tree.operator in tuple(Activation):
        activation, tree = Activation(tree.operator), tree.arguments[0]
    sums, residual = Operand(leaves[value]), None
    if isinstance(tree, Apply) and tree.operator == "add" and sums in tree.arguments:
        added_to = next((each for each in tree.arguments if each != sums), None)
        if not isinstance(added_to, Operand):
            return None
        residual = added_to
    elif tree != sums:
        return None
    reads = dict(product.reads)
    if residual is not None:
        reads["residual"] = {name: value for value, name in leaves.items()}[residual.name]
        added = graph.values[reads["residual"]]
        if (added.shape, added.dtype) != (problem.output.shape, problem.output.dtype):
            return None
    if root.operation.y.dtype is not problem.output.dtype:
        return None
    epilogue = replace(problem.epilogue, residual=residual is not None, activation=activation)
    fused = replace(problem, epilogue=epilogue)
    return Group(names, fused, tuple(reads.items()), root.writes)
