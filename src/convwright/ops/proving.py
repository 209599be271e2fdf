"""A chosen candidate's first calls: it has to be faster where it is used, and not only in the timer's loop.

Among other layers caches are cold and Python has just run something else, from which a plan of several short steps
suffers more than PyTorch's own call. How much depends on the network, so it is measured there: the two take turns for
some calls, each of which is timed, and what was surely faster serves from then on. On a CPU a call has ended when it
returns, so that a look at the clock is all it takes. On a GPU that looks at what the host takes, which is what counts
where the device has nothing to do until the call comes. Where the device is behind, its own time counts instead.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from statistics import median
from time import perf_counter_ns
from typing import Any, Protocol

import torch
from torch import Tensor

from convwright import flags
from convwright.ops.runner import Runner
from convwright.tuning.choose import TIE

_capturing: Any = torch._C._cuda_isCurrentStreamCapturing
# The first call of each is not counted: it packs, allocates and loads.
_UNCOUNTED = 2
_PAIRS = 12
# By chance one of two equals is ahead in so many of the pairs in one case of fourteen, and then by more than a tie.
_MOST_OF_THEM = 9
# After so many calls that found the device behind, its time decides.
_BEHIND = 12
# So many pairs in a row decide if one was ahead in all of them, for the candidate by so much.
_SOON, _FAR_AHEAD = 5, 0.8


class Queue(Protocol):
    """What a call is put into."""

    def is_behind(self) -> bool | None:
        """Whether there is something else to be done before a call that comes now. None: nobody can tell."""


class NoQueue:
    """A CPU's: a call has ended when it returns."""

    def is_behind(self) -> bool:
        return False


@dataclass(frozen=True, slots=True)
class Stream:
    """PyTorch's current one on a GPU."""

    device: torch.device

    def is_behind(self) -> bool | None:
        if _capturing():
            return None
        return not torch.cuda.current_stream(self.device).query()


_NO_QUEUE = NoQueue()


class Proving:
    """``ours`` and ``own``, PyTorch's, turn by turn, until one has shown to be faster.

    ``gain_us`` is then what a call gains, 0 where PyTorch's own stays, and None until it is known. ``queued_gain_us``
    is what it gains in a ``queue`` that is behind.
    """

    __slots__ = (
        "_behind", "_calls", "_ours_ns", "_own_ns", "_queue", "_queued_gain_us", "_strides", "_then", "gain_us", "ours",
        "own",
    )  # fmt: skip

    def __init__(self, ours: Runner, own: Runner, queue: Queue = _NO_QUEUE, queued_gain_us: float = 0.0) -> None:
        self.ours, self.own = ours, own
        self.gain_us: float | None = None
        self._queue, self._queued_gain_us = queue, queued_gain_us
        self._calls = self._behind = 0
        self._ours_ns: list[int] = []
        self._own_ns: list[int] = []
        self._strides: set[tuple[int, ...]] = set()
        self._then: list[Callable[[float], None]] = []

    def __call__(
        self,
        first: Tensor,
        second: Tensor,
        bias: Tensor | None = None,
        residual: Tensor | None = None,
        out: Tensor | None = None,
    ) -> Tensor:
        if self.gain_us is not None:
            return (self.ours if self.gain_us else self.own)(first, second, bias, residual, out)
        if flags.deterministic():  # since the choice was made, or results would not be by turns
            return self.ours(first, second, bias, residual, out)
        behind = self._queue.is_behind()
        if behind is None:
            return self.ours(first, second, bias, residual, out)
        # Of each two calls one is ours, in an order without a period that layers which come in turn could share.
        call, self._calls = self._calls, self._calls + 1
        mine = call.bit_count() % 2 == 1
        begun_ns = perf_counter_ns()
        result = (self.ours if mine else self.own)(first, second, bias, residual, out)
        taken_ns = perf_counter_ns() - begun_ns
        if call >= _UNCOUNTED:
            if behind:
                self._behind += 1
            else:
                (self._ours_ns if mine else self._own_ns).append(taken_ns)
            if call % 2 == 1:
                self._look()
        else:
            self._strides.add(result.stride())
            if len(self._strides) > 1:
                self._settle(0.0)  # whoever looks at a result's strides finds those that PyTorch gives
        return result

    def when_settled(self, then: Callable[[float], None]) -> None:
        """Call ``then`` with what a call gains, once it is known which of the two serves."""
        self._then.append(then)

    def instead(self, ours: Runner, own: Runner) -> Proving:
        """The same trial of these two."""
        trial = Proving(ours, own, self._queue, self._queued_gain_us)
        trial._then = self._then
        return trial

    def _look(self) -> None:
        if self._behind >= _BEHIND:
            self._settle(self._queued_gain_us)
        pairs = min(len(self._ours_ns), len(self._own_ns))  # another thread may be in the middle of one
        gain_ns = gained_ns(self._ours_ns[:pairs], self._own_ns[:pairs]) if pairs else None
        if gain_ns is not None:
            self._settle(gain_ns / 1e3)

    def _settle(self, gain_us: float) -> None:
        if self.gain_us is None:
            self.gain_us = gain_us
            told, self._then = self._then, []
            for then in told:
                then(gain_us)


class Wrapped:
    """``run``, and the ``trial`` inside of it that tells what a step gains once that is known."""

    __slots__ = ("_run", "trial")

    def __init__(self, run: Runner, trial: object) -> None:
        self._run = run
        self.trial: object = trial.trial if isinstance(trial, Wrapped) else trial

    def __call__(
        self,
        first: Tensor,
        second: Tensor,
        bias: Tensor | None = None,
        residual: Tensor | None = None,
        out: Tensor | None = None,
    ) -> Tensor:
        return self._run(first, second, bias, residual, out)


def gained_ns(ours_ns: list[int], own_ns: list[int]) -> float | None:
    """What a call of ours surely gains, from calls of both in pairs; 0 for nothing, None if that is open.

    >>> gained_ns([70] * 5, [100] * 5), gained_ns([99] * 5, [100] * 5), gained_ns([101] * 5, [100] * 5)
    (30.0, None, 0.0)
    """
    pairs = list(zip(ours_ns, own_ns, strict=True))
    ahead = sum(ours < own for ours, own in pairs)
    ours, own = median(ours_ns), median(own_ns)
    if len(pairs) >= _PAIRS:
        return float(own - ours) if ahead >= _MOST_OF_THEM and ours < (1 - TIE) * own else 0.0
    if len(pairs) >= _SOON and ahead == 0:
        return 0.0
    if len(pairs) >= _SOON and ahead == len(pairs) and ours < _FAR_AHEAD * own:
        return float(own - ours)
    return None
