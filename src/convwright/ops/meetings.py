"""Which calls are worth a decision: a search takes as long as many calls, so it waits until a call comes again.

A layer that always sees the same shape is tuned at its second call. One that sees ever new shapes is served by
PyTorch's own functions; what comes again there is tuned too, as long as searches take no more than a small share of
the time that has passed, so that no input, however varied, is slowed down by more than that.
"""

from __future__ import annotations

from time import perf_counter

from convwright.ops import ambient
from convwright.ops.call import Call
from convwright.settings import QUICK_BUDGET_US, Mode
from convwright.tuning.session import Session, session

_SHARE = 0.05
# A weight that is made anew for each call has no second one.
_ALIKE = 16
_MOST_REMEMBERED = 1 << 16
Kind = tuple[object, ...]


class Meetings:
    """Counts the calls that no slot stands for."""

    def __init__(self) -> None:
        self._begun_s = perf_counter()
        self._met: set[tuple[int, Kind]] = set()
        self._alike: dict[Kind, int] = {}
        self._kinds_of_layer: dict[int, int] = {}

    def worth_deciding(self, call: Call) -> bool:
        """Whether what runs this call should be decided now; until then PyTorch's own functions do."""
        made, request = session(), call.request
        waits = made.mode is Mode.QUICK and request.algorithm is None and request.policy is None
        if not waits or ambient.current() is not None:
            return True
        layer, kind = id(call.w), _kind(call)
        if (layer, kind) not in self._met:
            self._note(layer, kind)
            return self._alike[kind] >= _ALIKE
        return self._kinds_of_layer[layer] == 1 or self._affordable(made)

    def _note(self, layer: int, kind: Kind) -> None:
        if len(self._met) >= _MOST_REMEMBERED:
            self.forget()
        self._met.add((layer, kind))
        self._alike[kind] = self._alike.get(kind, 0) + 1
        self._kinds_of_layer[layer] = self._kinds_of_layer.get(layer, 0) + 1

    def _affordable(self, made: Session) -> bool:
        passed_us = (perf_counter() - self._begun_s) * 1e6
        return made.spent_us + QUICK_BUDGET_US <= _SHARE * passed_us

    def forget(self) -> None:
        """Take every call for a new one again."""
        self._met.clear()
        self._alike.clear()
        self._kinds_of_layer.clear()


def _kind(call: Call) -> Kind:
    """What makes two calls of a layer alike, read faster than the problem that they pose."""
    request = tuple([tuple(value) if isinstance(value, list) else value for value in call.request])
    return call.form, call.x.shape, call.x.stride(), call.w.shape, call.x.dtype, call.x.device, request, call.extra


meetings = Meetings()
