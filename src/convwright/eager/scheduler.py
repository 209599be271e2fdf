"""When a call is decided. A search takes as long as many calls, so it waits until a layer's shape comes again.

A layer that always sees the same shape is searched at its second call. If an earlier process has searched it, it is
decided at the first. On a CPU calls never search: they are decided if the store has findings for this device.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from enum import Enum, auto

import torch

from convwright import flags
from convwright.core.policy import Objective
from convwright.eager.asking import ambient
from convwright.eager.calls.call import Call, Request
from convwright.eager.calls.posed import posed
from convwright.errors import ConvwrightError
from convwright.measuring.hardware.machine import device_facts
from convwright.settings import Mode
from convwright.tuning.session import HURRIED, session

# A layer that has seen more shapes than _MOST_KINDS is left to PyTorch's own function. No shape is searched while new
# ones keep coming: calm means as many calls without a new shape as there are known shapes, at most _LONGEST_PASS.
_MOST_KINDS, _LONGEST_PASS = 8, 128
# A weight made anew for each call has no second call. A deep network has some dozens of equal layers.
_ALIKE = 64
_MOST_REMEMBERED = 1 << 16
_Kind = tuple[object, ...]


class When(Enum):
    """When a call without a slot is decided."""

    NOW = auto()
    LATER = auto()  # if it comes again
    NEVER = auto()  # PyTorch's own function serves this call and the next ones


class SearchScheduler:
    """Counts calls without a slot, and says when to decide them."""

    def __init__(self) -> None:
        self._hurried = False
        self.forget()

    def when(self, call: Call) -> When:
        if self._hurried or not _may_wait(call):
            return When.NOW
        here, device = session(), device_facts(call.x.device)
        if here.mode is Mode.OFF:
            return When.NEVER
        if self._known >= _MOST_REMEMBERED:
            self.forget()
        kind, kinds = _kind(call), self._kinds.setdefault((id(call.w), call.w.shape), set())
        again = kind in kinds
        self._note(kind, kinds, call.w.shape)
        if len(kinds) > _MOST_KINDS:
            return When.NEVER
        if device.kind not in here.searches_on:
            return When.NOW if here.knows_device(device) else When.NEVER
        if again or self._alike[kind] >= _ALIKE:
            return When.NOW if self._is_calm() else When.LATER
        is_usual = len(kinds) == 1 and self._layers[call.w.shape] <= _ALIKE
        return When.NOW if is_usual and _is_known(call) else When.LATER

    @contextmanager
    def hurried(self) -> Iterator[None]:
        """Inside, every call is decided at once."""
        before, self._hurried = self._hurried, True
        try:
            yield
        finally:
            self._hurried = before

    def forget(self) -> None:
        """Forget all calls."""
        self._kinds: dict[tuple[int, torch.Size], set[_Kind]] = {}
        self._alike: dict[_Kind, int] = {}
        self._layers: dict[torch.Size, int] = {}
        self._since_new = self._known = 0
        self._varies = False

    def _note(self, kind: _Kind, kinds: set[_Kind], w_shape: torch.Size) -> None:
        if kind in kinds:
            self._since_new += 1
        elif kinds:
            self._varies, self._since_new = True, 0
        else:
            self._layers[w_shape] = self._layers.get(w_shape, 0) + 1
        self._alike[kind] = self._alike.get(kind, 0) + 1
        self._known += kind not in kinds
        kinds.add(kind)

    def _is_calm(self) -> bool:
        """Whether no layer has seen a new shape for a whole pass through all known shapes."""
        return not self._varies or self._since_new >= min(self._known, _LONGEST_PASS)


def _may_wait(call: Call) -> bool:
    """Whether PyTorch's own functions may serve for now: the caller asked for nothing else."""
    request, mode = call.request, session().mode
    if mode not in (*HURRIED, Mode.OFF) or request.algorithm is not None or ambient.current() is not None:
        return False
    if mode in HURRIED and flags.deterministic():  # a later choice could give other bits than the first call
        return False
    policy = request.policy
    if policy is None:
        return True
    # A replacement of PyTorch's functions is not asked for at a particular call.
    by_time = policy.objective in (Objective.TIME, Objective.DEVICE_TIME)
    return call.form.stands_in and by_time and policy.arithmetic is None and not policy.deterministic


def _is_known(call: Call) -> bool:
    """Whether an earlier process has searched for everything that this call needs, so that deciding takes no time."""
    try:
        problems = posed(call)
    except ConvwrightError:
        return False
    device, policy = device_facts(call.x.device), call.policy
    return all(session().knows(problem, device, policy) for problem in problems)


def _kind(call: Call) -> _Kind:
    """A key that is equal for equal calls of a layer, faster to build than their problem."""
    x, request = call.x, call.request
    if list in map(type, request):
        request = Request._make([tuple(value) if isinstance(value, list) else value for value in request])
    return call.form, x.shape, x.stride(), call.w.shape, x.dtype, x.device, request, call.extra


scheduler = SearchScheduler()
