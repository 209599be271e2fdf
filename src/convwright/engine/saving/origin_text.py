"""How an engine's constants follow from a model's weights, as JSON data and tensors, and back."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from torch import Tensor

from convwright.core.dtype import DType
from convwright.engine.origin import Origin
from convwright.engine.precision.lowering import Lowering
from convwright.engine.saving.plan_text import graph_read, graph_written, spec_written

# The plan's key.
ORIGIN = "origin"
# What the names of an origin's tensors begin with in the weights file, which also holds the plan's constants.
_MADE, _FIXED = "made: ", "fixed: "


def origin_written(origin: Origin) -> dict[str, Any]:
    graph = origin.graph
    return {
        "graph": graph_written(graph),
        "constants": {name: spec_written(graph.values[name]) for name in graph.constants},
        "names": origin.names,
        "made": [*origin.made],
        "fixed": [*origin.fixed],
        "settings": dict(origin.settings),
        "dtypes": dict(origin.lowering.dtypes),
    }


def origin_tensors(origin: Origin) -> dict[str, Tensor]:
    """The tensors of an origin, by their names in the weights file."""
    made = {_MADE + name: tensor for name, tensor in origin.made.items()}
    return made | {_FIXED + name: tensor for name, tensor in origin.fixed.items()}


def origin_read(plan: Mapping[str, Any], held: Mapping[str, Tensor]) -> Callable[[], Origin] | None:
    """A function that reads the origin; None if the plan has none, since an earlier version wrote it."""
    if (data := plan.get(ORIGIN)) is None or "settings" not in data:
        return None
    made = {name: held[_MADE + name] for name in data["made"]}
    return partial(_read, data, made, {name: held[_FIXED + name] for name in data["fixed"]})


def _read(data: Mapping[str, Any], made: Mapping[str, Tensor], fixed: Mapping[str, Tensor]) -> Origin:
    dtypes = {str(node): DType.parse(dtype) for node, dtype in data["dtypes"].items()}
    settings = {str(name): str(described) for name, described in data["settings"].items()}
    return Origin(graph_read(data), tuple(data["names"]), made, fixed, settings, Lowering(dtypes))
