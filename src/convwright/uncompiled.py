"""What ``torch.compile`` must leave alone: whatever searches, measures, or puts functions in others' places.

Dynamo would take seconds to look through such code, and make part of a graph what was true of one call. PyTorch's own
``torch.compiler.disable`` does the same by a wrapper, and takes 0.9 s to be imported.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from convwright import torch_api

_REASON = "`{name}` is no part of a graph: call it outside of what is compiled"
_Function = TypeVar("_Function", bound=Callable[..., Any])


def uncompiled(reason: str | None = None) -> Callable[[_Function], _Function]:
    """The same function; a graph ends before it, and nothing inside is compiled. Where a graph may not end, that is an
    error, and ``reason`` a part of its message."""

    def marked(function: _Function) -> _Function:
        torch_api.end_graphs_at(function, reason or _REASON.format(name=function.__name__))
        return function

    return marked
