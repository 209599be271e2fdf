"""Which calls are worth a decision: a search takes as long as many calls, so it waits until a call comes again.

A layer that always sees the same shape is tuned at its second call; what an earlier process has searched for is
decided at the first. Where layers see ever new shapes, PyTorch's own
functions serve, until nothing new has come for as many calls as there are kinds of them, or searches have taken only
a small share of the time that has passed: no input, however varied, is slowed down by more than that.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from enum import Enum, auto
from time import perf_counter

import torch

from convwright import flags
from convwright.core.policy import Policy
from convwright.core.problem import ConvProblem
from convwright.errors import ConvwrightError
from convwright.measuring.hardware.machine import device_facts
from convwright.ops.asking import ambient
from convwright.ops.asking.request import Request
from convwright.ops.calls.call import Call
from convwright.ops.calls.posed import Wanted, posed, trained
from convwright.ops.gradients.fused_gradients import fused_problems
from convwright.settings import BUDGETS_US, Mode
from convwright.tuning.session import session

_SHARE = 0.05
# The first search of a process loads libraries; later ones are expected to take what the dearest one took.
_FIRST_SEARCH_US = 10 * BUDGETS_US[Mode.QUICK]
_LONGEST_PASS = 128
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
        if session().mode is Mode.OFF:
            return Verdict.VARIES
        layer, kind = (id(call.w), call.w.shape), _kind(call)
        known = self._kinds.get(layer)
        again = known is not None and kind in known
        if again:
            self._since_new += 1
        else:
            known = self._note(layer, kind)
        kinds = len(known or ())
        if (again or self._alike[kind] >= _ALIKE) and (self._is_calm(kinds) or self.affordable()):
            return Verdict.DECIDE
        if again or kinds > 1:
            return Verdict.VARIES
        if _is_known(call):
            return Verdict.DECIDE
        return Verdict.FRESH if self._layers[call.w.shape] >= _ALIKE else Verdict.WAIT

    @contextmanager
    def hurried(self) -> Iterator[None]:
        """Inside, every call is decided at once."""
        before, self._hurried = self._hurried, True
        try:
            yield
        finally:
            self._hurried = before

    def _note(self, layer: Layer, kind: Kind) -> set[Kind]:
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
        return kinds

    def _is_calm(self, kinds: int) -> bool:
        """Whether nothing new has come for a whole pass through everything that is known."""
        return kinds <= _MOST_KINDS and (not self._varies or self._since_new >= min(self._known, _LONGEST_PASS))

    def affordable(self) -> bool:
        """Whether searches have taken so little of the time that has passed that one more may."""
        here, passed_us = session(), (perf_counter() - self._begun_s) * 1e6
        return here.spent_us + (here.dearest_us or _FIRST_SEARCH_US) <= _SHARE * passed_us

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
    mode = session().mode
    if mode not in (Mode.QUICK, Mode.OFF) or request.algorithm is not None or ambient.current() is not None:
        return False
    if mode is Mode.QUICK and flags.deterministic():  # a later choice would give other bits than the first call
        return False
    policy = request.policy
    if policy is None:
        return True
    # Whoever replaces PyTorch's functions asks at no call in particular.
    return call.form.stands_in and policy.arithmetic is None and not policy.deterministic


def _is_known(call: Call) -> bool:
    """Whether an earlier process has searched for all that this call needs, so that a decision takes no time."""
    try:
        # Which gradients kernels fuse takes longer to find out than all else, and need not be where that is unknown.
        return _are_known(posed(call), call) and _are_known(_posed_fused(call), call)
    except ConvwrightError:
        return False


def _are_known(problems: list[ConvProblem], call: Call) -> bool:
    device, policy = device_facts(call.x.device), call.request.policy or Policy()
    return all(session().knows(problem, device, policy) for problem in problems)


def _posed_fused(call: Call) -> list[ConvProblem]:
    """Those of its gradients that kernels fuse with what stands ahead of them."""
    wanted, policy = Wanted.at(call), call.request.policy or Policy()
    if not any(wanted):
        return []
    fused = fused_problems(trained(call.problem(), wanted), wanted, policy, device_facts(call.x.device))
    return [problem for problem in fused if problem is not None]


def _kind(call: Call) -> Kind:
    """What makes two calls of a layer alike, read faster than the problem that they pose."""
    x, request = call.x, call.request
    if list in map(type, request):
        request = Request._make([tuple(value) if isinstance(value, list) else value for value in request])
    return call.form, x.shape, x.stride(), call.w.shape, x.dtype, x.device, request, call.extra


meetings = Meetings()
