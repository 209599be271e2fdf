"""The data of an engine: plan, constants and output structure, without memory for runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from torch import Tensor

from convwright.engine.origin import Origin
from convwright.engine.planning.assignment import Assignment
from convwright.engine.structure import Structure
from convwright.graph.graph import Graph
from convwright.store.kept_plans import KeptPlans


@dataclass(frozen=True, slots=True, eq=False)
class Blueprint:
    """An engine without memory for its runs: its plan and the constants of its network. ``origin`` says how the
    constants follow from the model's weights; a folder's is read only when it is needed."""

    assignment: Assignment
    constants: Mapping[str, Tensor]
    structure: Structure
    origin: Callable[[], Origin] | None = None
    graph: Graph | None = None
    kernels: KeptPlans | None = None
    """Kernels compiled by the process that saved the engine; set only if the user trusts them."""
