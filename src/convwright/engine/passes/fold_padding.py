"""Fold padding operators into the convolutions that read them."""

from __future__ import annotations

from dataclasses import replace

from convwright.core.direction import Direction
from convwright.core.kinds.copy import CopyProblem
from convwright.core.problem import ConvProblem
from convwright.engine.network import Network
from convwright.engine.passes.change import Changed
from convwright.graph.graph import Node


def fold_padding(network: Network) -> Changed:
    """Let forward convolutions do the zero padding of their input themselves."""
    graph, writers = network.graph, network.graph.writers
    nodes, sentences = list[Node](), list[str]()
    for node in graph.nodes:
        reads = dict(node.reads)
        padding = writers.get(reads.get("x", ""))
        if padding is None or not _folds(padding, node):
            nodes.append(node)
            continue
        assert isinstance(padding.operation, CopyProblem)
        assert isinstance(node.operation, ConvProblem)
        sides = zip(node.operation.padding, padding.operation.margins[2:], strict=True)
        padded = tuple((low + before, high + after) for (low, high), (before, after) in sides)
        problem = replace(node.operation, x=padding.operation.x, padding=padded)
        ((_, source),) = padding.reads
        nodes.append(Node(node.name, problem, tuple((reads | {"x": source}).items()), node.writes))
        sentences.append(f"{node.name} pads by itself what {padding.name} padded.")
    return Changed(network.with_graph(graph.with_nodes(nodes)), tuple(sentences))


def _folds(padding: Node, node: Node) -> bool:
    copy, problem = padding.operation, node.operation
    if not (isinstance(copy, CopyProblem) and isinstance(problem, ConvProblem)):
        return False
    only_pads = copy.x.dtype is copy.y.dtype and all(side >= 0 for pair in copy.margins for side in pair)
    return only_pads and not any(map(any, copy.margins[:2])) and problem.direction is Direction.FORWARD
