"""Which calls are worth a decision: a search takes as long as many calls, so it waits until a call comes again.

A layer that always sees the same shape is tuned at its second call. Where layers see ever new shapes, PyTorch's own
functions serve, until nothing new has come for as many calls as there are kinds of them, or searches have taken only
a small share of the time that has passed: no input, however varied, is slowed down by more than that.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from enum import Enum, auto
from time import perf_counter

import torch

from convwright.ops import ambient
from convwright.ops.call import Call
from convwright.settings import QUICK_BUDGET_US, Mode
from convwright.tuning.session import session

_SHARE = 0.05
# A layer that has met more kinds is not tuned for each of them in one go.
_MOST_KINDS = 8
# A weight that is made anew for each call has no second one. A deep network has some dozens of equal layers.
_ALIKE = 64
_MOST_REMEMBERED = 1 << 16
Kind = tuple[object, ...]
Layer = tuple[int, torch.Size]


class Verdict(Enum):
    """What is to be done about a call that no slot stands for."""

    DECIDE = auto()
    WAIT = auto()
    VARIES = auto()  # the layer is fed ever new shapes
    FRESH = auto()  # so are weights that are made anew for each call


class Meetings:
    """Counts the calls that no slot stands for."""

    def __init__(self) -> None:
        self._begun_s = perf_counter()
        self._kinds: dict[Layer, set[Kind]] = {}
        self._alike: dict[Kind, int] = {}
        self._layers: dict[torch.Size, int] = {}
        self._known = 0
        self._varies = False
        self._since_new = 0
        self._hurried = False

    def judge(self, call: Call) -> Verdict:
        """Whether what runs this call should be decided now; until then PyTorch's own functions do."""
        if self._hurried or not _waits(call):
            return Verdict.DECIDE
        layer, kind = (id(call.w), call.w.shape), _kind(call)
        again = kind in self._kinds.get(layer, ())
        if again:
            self._since_new += 1
        else:
            self._note(layer, kind)
        kinds = len(self._kinds[layer])
        if (again or self._alike[kind] >= _ALIKE) and (self._is_calm(kinds) or self._affordable()):
            return Verdict.DECIDE
        if again or kinds > 1:
            return Verdict.VARIES
        return Verdict.FRESH if self._layers[call.w.shape] >= _ALIKE else Verdict.WAIT

    @contextmanager
    def hurried(self) -> Iterator[None]:
        """Inside, every call is decided at once."""
        before, self._hurried = self._hurried, True
        try:
            yield
        finally:
            self._hurried = before

    def _note(self, layer: Layer, kind: Kind) -> None:
        if self._known >= _MOST_REMEMBERED:
            self.forget()
        kinds = self._kinds.setdefault(layer, set())
        if kinds:
            self._varies, self._since_new = True, 0
        else:
            self._layers[layer[1]] = self._layers.get(layer[1], 0) + 1
        kinds.add(kind)
        self._alike[kind] = self._alike.get(kind, 0) + 1
        self._known += 1

    def _is_calm(self, kinds: int) -> bool:
        """Whether nothing new has come for a whole pass through everything that is known."""
        return kinds <= _MOST_KINDS and (not self._varies or self._since_new >= self._known)

    def _affordable(self) -> bool:
        passed_us = (perf_counter() - self._begun_s) * 1e6
        return session().spent_us + QUICK_BUDGET_US <= _SHARE * passed_us

    def forget(self) -> None:
        """Take every call for a new one again."""
        self._kinds.clear()
        self._alike.clear()
        self._layers.clear()
        self._known = self._since_new = 0
        self._varies = False


def _waits(call: Call) -> bool:
    """Whether PyTorch's own functions may serve until more is known: nothing else was asked for."""
    request = call.request
    if session().mode is not Mode.QUICK or request.algorithm is not None or ambient.current() is not None:
        return False
    policy = request.policy
    if policy is None:
        return True
    # Whoever replaces PyTorch's functions asks at no call in particular.
    return call.form.stands_in and policy.arithmetic is None and not policy.deterministic


def _kind(call: Call) -> Kind:
    """What makes two calls of a layer alike, read faster than the problem that they pose."""
    x, request = call.x, call.request
    plain = tuple([tuple(value) if isinstance(value, list) else value for value in request])
    return call.form, x.shape, x.stride(), call.w.shape, x.dtype, x.device, plain, call.extra


meetings = Meetings()
