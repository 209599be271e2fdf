"""The arguments of an operator in a graph from torch.export."""

from __future__ import annotations

from typing import Any

from convwright import torch_api


def arguments(node: Any) -> dict[str, Any]:
    """A node's arguments by name, defaults included."""
    found: dict[str, Any] = {}
    for place, argument in enumerate(torch_api.schema_of(node.target).arguments):
        if place < len(node.args):
            found[argument.name] = node.args[place]
        elif argument.name in node.kwargs:
            found[argument.name] = node.kwargs[argument.name]
        else:
            found[argument.name] = argument.default_value
    return found
