"""Compute values that depend on weights alone once, during planning."""

from __future__ import annotations

from torch import Tensor

from convwright.engine.network import Network
from convwright.engine.passes.change import Changed
from convwright.engine.reference import evaluated
from convwright.graph.graph import Graph, Node
from convwright.tensors import torch_dtype


def fold_constants(network: Network) -> Changed:
    """Replace nodes that read only constants by constants, computed in float64 and rounded once."""
    graph, held = network.graph, dict(network.constants)
    kept, made = list[Node](), list[str]()
    for node in graph.nodes:
        if node.reads and all(value in held for value in node.sources):
            held |= _computed(node, held, graph)
            made += node.writes
        else:
            kept.append(node)
    if not made:
        return Changed(network)
    folded = Graph(graph.values, tuple(kept), graph.inputs, graph.outputs, (*graph.constants, *made)).needed()
    read = set(folded.constants)
    sentences = tuple(f"{name} depends on constants only and is computed once." for name in made if name in read)
    return Changed(network.with_graph(folded, held), sentences)


def _computed(node: Node, held: dict[str, Tensor], graph: Graph) -> dict[str, Tensor]:
    results = evaluated(node.operation, {role: held[value].double() for role, value in node.reads})
    specs = [graph.values[value] for value in node.writes]
    return {
        value: result.to(torch_dtype(spec.dtype)).contiguous()
        for value, result, spec in zip(node.writes, results, specs, strict=True)
    }
