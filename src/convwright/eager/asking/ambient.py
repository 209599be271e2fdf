"""Algorithms asked for around a call instead of at it: ``with cw.algorithms(forward="cudnn/gemm"): …``."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import cache
from reprlib import repr as brief
from threading import Lock

from convwright.core.direction import Direction
from convwright.errors import BadInput, IgnoredWarning
from convwright.forking import in_child
from convwright.uncompiled import uncompiled

AUTO = "auto"


@dataclass(slots=True, eq=False)
class Algorithms:
    """An algorithm for each direction, None where the choice is free. ``strict``: one that refuses is an error.

    ``read`` says that a call has asked for them, ``warned`` that a block in which none did has said so.
    """

    by_direction: dict[Direction, str | None]
    strict: bool
    read: bool = False
    warned: bool = False

    def get(self, direction: Direction) -> str | None:
        return self.by_direction[direction]

    def demanded(self, direction: Direction) -> str | None:
        """The same, where nothing else may serve in its place."""
        return self.by_direction[direction] if self.strict else None


@cache
def algorithms_of(forward: str, backward_data: str, backward_weight: str, strict: bool) -> Algorithms:
    """The algorithms of these names, which must have been checked. Equal names give one object, so that what was
    decided in one context is found again in the next."""
    named = zip(Direction, (forward, backward_data, backward_weight), strict=True)
    return Algorithms({direction: None if name == AUTO else name for direction, name in named}, strict)


class _Contexts:
    """How many contexts are open in all threads: while none is, nobody need look for one.

    ``unlooked`` is what is not looked at, which is emptied when one opens; who adds to it looks again then.
    ``is_enabled`` says whether PyTorch's functions are replaced, as far as ``enable`` was ever imported.
    """

    __slots__ = ("_lock", "is_enabled", "open", "unlooked")

    def __init__(self) -> None:
        self.open = 0
        self.is_enabled: Callable[[], bool] = bool
        self.unlooked: list[dict[int, bool]] = []
        self._lock = Lock()

    def unlock(self) -> None:
        """In a child that was forked off while another thread held the lock."""
        self._lock = Lock()

    def count(self, change: int) -> None:
        with self._lock:
            self.open += change
            for each in self.unlooked if self.open else ():
                each.clear()


contexts = _Contexts()
in_child(contexts.unlock)
_asked: ContextVar[Algorithms | None] = ContextVar("convwright.algorithms", default=None)
asked = _asked.get


def current() -> Algorithms | None:
    """What the innermost context of this thread asks for."""
    found = asked() if contexts.open else None
    if found is not None:
        found.read = True
    return found


@uncompiled("`algorithms` is no part of a graph: open it around what is compiled, or give `algorithm=` at the call")
@contextmanager
def algorithms(
    *,
    forward: str = AUTO,
    backward_data: str = AUTO,
    backward_weight: str = AUTO,
    strict: bool = True,
) -> Iterator[None]:
    """Inside, every convolution of this thread uses these algorithms; "auto" leaves the choice free.

    Directions are those of the problem: a transposed convolution is a ``backward_data`` problem. An algorithm that
    cannot serve a problem is an error. With ``strict=False`` that problem is computed by what is known to be fastest,
    and nothing is searched. ``algorithm=`` at a call goes before, and there "auto" frees that call.

    Only convwright's convolutions look at these names: ``cw.conv2d`` and its like, layers after ``cw.convert``, and
    every model after ``cw.enable()``. A block that none of them runs in ends with a warning.

    >>> import torch, convwright as cw
    >>> x, w = torch.ones(1, 2, 5, 5), torch.ones(4, 2, 3, 3)
    >>> with cw.algorithms(forward="reference/gemm"):
    ...     _ = cw.conv2d(x, w)
    >>> cw.last_choice().candidate.id
    'reference/gemm'
    """
    named = dict(zip(Direction, (forward, backward_data, backward_weight), strict=True))
    for direction, name in named.items():
        if not isinstance(name, str):
            raise BadInput(f"`{direction}` must be an algorithm's name or 'auto', got {brief(name)}")
        if name != AUTO:
            from convwright.eager.asking.known_names import check_known  # which lists what the backends offer

            check_known(name, f"`{direction}`")
    if not isinstance(strict, bool):
        raise BadInput(f"`strict` must be True or False, got {brief(strict)}")
    wanted = algorithms_of(forward, backward_data, backward_weight, strict)
    with asking(wanted):
        yield
    if set(named.values()) != {AUTO}:
        _warn_if_ignored(wanted)


@contextmanager
def asking(wanted: Algorithms) -> Iterator[None]:
    """Inside, every convolution of this thread uses these."""
    token = _asked.set(wanted)
    contexts.count(1)
    try:
        yield
    finally:
        contexts.count(-1)
        _asked.reset(token)


def _warn_if_ignored(wanted: Algorithms) -> None:
    """Say once that a block had no effect, as one around a plain model has while nothing is enabled."""
    if wanted.read or wanted.warned or contexts.is_enabled():
        return
    wanted.warned = True
    warnings.warn(
        "cw.algorithms had no effect: no convolution of convwright ran inside, and PyTorch's own do not ask for "
        "algorithms; call cw.enable() before, or cw.convert(model)",
        IgnoredWarning,
        stacklevel=4,
    )


@contextmanager
def freely(direction: Direction) -> Iterator[None]:
    """What ``algorithm="auto"`` at a call stands for: inside, nothing is asked for in this direction around it."""
    around = current()
    if around is None:
        yield
        return
    names = [AUTO if each is direction else around.get(each) or AUTO for each in Direction]
    token = _asked.set(None if set(names) == {AUTO} else algorithms_of(*names, around.strict))
    try:
        yield
    finally:
        _asked.reset(token)
