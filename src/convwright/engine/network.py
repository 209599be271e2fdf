"""A graph with its weights."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from torch import Tensor

from convwright.errors import BadInput
from convwright.graph.graph import Graph
from convwright.tensors import is_like


@dataclass(frozen=True, slots=True, eq=False)
class Network:
    """A graph and ``constants``, a tensor for each of its constants. They are the model's own tensors until a pass
    computes others."""

    graph: Graph
    constants: Mapping[str, Tensor]

    def __post_init__(self) -> None:
        for name in self.graph.constants:
            spec, held = self.graph.values[name], self.constants.get(name)
            if not is_like(held, spec):
                has = "nothing" if held is None else f"{held.dtype} {tuple(held.shape)}"
                raise BadInput(f"the constant {name!r} is {spec.dtype} {spec.shape}, got {has}")

    def with_graph(self, graph: Graph, constants: Mapping[str, Tensor] | None = None) -> Network:
        """Another graph over these constants plus those given. Constants that it does not use are dropped."""
        known = {**self.constants, **(constants or {})}
        return Network(graph, {name: known[name] for name in graph.constants})
