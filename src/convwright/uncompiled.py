"""What ``torch.compile`` must leave alone: whatever searches, measures, or puts functions in others' places.

Dynamo would take seconds to look through such code, and make part of a graph what was true of one call. PyTorch's own
``torch.compiler.disable`` does the same by a wrapper, and takes 0.9 s to be imported.
"""

from __future__ import annotations

from collections.abc import Callable
from inspect import unwrap
from typing import Any, TypeVar

import torch

_eval_frame: Any = torch._C._dynamo.eval_frame
_REASON = "`{name}` is no part of a graph: call it outside of what is compiled"
_Function = TypeVar("_Function", bound=Callable[..., Any])


def uncompiled(reason: str | None = None) -> Callable[[_Function], _Function]:
    """The same function; a graph ends before it, and nothing inside is compiled. Where a graph may not end, that is an
    error, and ``reason`` a part of its message."""

    def marked(function: _Function) -> _Function:
        target: Any = function
        target._torchdynamo_disable = True
        target._torchdynamo_disable_msg = reason or _REASON.format(name=target.__name__)
        skip = _eval_frame._FrameAction.SKIP
        strategy = _eval_frame._FrameExecStrategy(skip, skip)  # for its own frame, and for all that it calls
        _eval_frame.set_code_exec_strategy(unwrap(target).__code__, strategy)
        return function

    return marked
