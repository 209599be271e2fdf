"""Compute an operation on the same values only once."""

from __future__ import annotations

from convwright.engine.network import Network
from convwright.engine.passes.change import Changed
from convwright.graph.graph import Node
from convwright.graph.operations import Operation


def merge_duplicates(network: Network) -> Changed:
    """Let readers of a duplicate node read the first one. A node that the network returns stays, since two outputs do
    not share memory."""
    graph = network.graph
    first: dict[tuple[Operation, tuple[tuple[str, str], ...]], Node] = {}
    renamed, kept, sentences = dict[str, str](), list[Node](), list[str]()
    for node in (each.reading(renamed) for each in graph.nodes):
        before = first.setdefault((node.operation, node.reads), node)
        if before is node or set(node.writes).intersection(graph.outputs):
            kept.append(node)
            continue
        renamed |= dict(zip(node.writes, before.writes, strict=True))
        sentences.append(f"{node.name} computes the same as {before.name} and is left out.")
    return Changed(network.with_graph(graph.with_nodes(kept)), tuple(sentences))
