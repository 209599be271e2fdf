"""Calls that can be timed: one, several in turn, or one after untimed work."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from inspect import iscoroutinefunction, isgeneratorfunction, signature
from itertools import cycle
from reprlib import repr as brief

from torch import nn

from convwright.errors import BadInput

Call = Callable[[], object] | Sequence[Callable[[], object]]


@dataclass(frozen=True, slots=True)
class After:
    """A call with work before it each time, which is not part of its time."""

    before: Callable[[], object]
    call: Callable[[], object]

    def __call__(self) -> object:
        self.before()
        return self.call()


def rotating(call: Call) -> Callable[[], object]:
    """One call for a sequence of equivalent ones on different inputs, in turn.

    With more inputs than the cache holds, every call finds its input cold.

    >>> turn = rotating([lambda: "a", lambda: "b"])
    >>> turn(), turn(), turn()
    ('a', 'b', 'a')
    """
    if iscoroutinefunction(call) or isgeneratorfunction(call):
        raise BadInput(f"calling {brief(call)} computes nothing yet: give a function that runs it")
    if isinstance(call, nn.Module) and _needs_input(call):
        raise BadInput(f"a model is timed on an input, as lambda: model(x), got {type(call).__name__} alone")
    if callable(call):
        return call
    if not (isinstance(call, Sequence) and call and all(map(callable, call))):
        raise BadInput(f"a call must be a function, or a sequence of at least one, got {brief(call)}")
    if len(call) == 1:
        return call[0]
    turns = cycle(call)
    return lambda: next(turns)()


def _needs_input(model: nn.Module) -> bool:
    try:
        signature(model.forward).bind()
    except TypeError:
        return True
    return False
