"""A chosen candidate's first calls, on a CPU: it has to be faster where it is used, and not only in the timer's loop.

Among other layers caches are cold and Python has just run something else, from which a plan of several short steps
suffers more than PyTorch's own call. How much depends on the network, so it is measured there: the two take turns for
some calls, each of which is timed, and what was surely faster serves from then on. On a CPU a call has ended when it
returns, so that a look at the clock is all it takes.
"""

from __future__ import annotations

from collections.abc import Callable
from statistics import median
from time import perf_counter_ns

from torch import Tensor

from convwright import flags
from convwright.measuring.compare import TIE
from convwright.measuring.memory import settle_heap
from convwright.ops.running.runner import Runner

# The first call of each is not counted: it packs, allocates and loads.
_UNCOUNTED = 2
_PAIRS = 12
# By chance one of two equals is ahead in so many of the pairs in one case of fourteen, and then by more than a tie.
_MOST_OF_THEM = 9
# So many pairs in a row decide if one was ahead in all of them, for the candidate by so much.
_SOON, _FAR_AHEAD = 5, 0.8


class Proving:
    """``ours`` and ``own``, PyTorch's, turn by turn, until one has shown to be faster.

    ``gain_us`` is then what a call gains, 0 where PyTorch's own stays, and None until it is known.
    """

    __slots__ = ("_calls", "_ours_ns", "_own_ns", "_then", "gain_us", "ours", "own")

    def __init__(self, ours: Runner, own: Runner) -> None:
        settle_heap()
        self.ours, self.own = ours, own
        self.gain_us: float | None = None
        self._calls = 0
        self._ours_ns: list[int] = []
        self._own_ns: list[int] = []
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
        # Of each two calls one is ours, in an order without a period that layers which come in turn could share.
        call, self._calls = self._calls, self._calls + 1
        mine = call.bit_count() % 2 == 1
        begun_ns = perf_counter_ns()
        result = (self.ours if mine else self.own)(first, second, bias, residual, out)
        taken_ns = perf_counter_ns() - begun_ns
        if call >= _UNCOUNTED:
            (self._ours_ns if mine else self._own_ns).append(taken_ns)
            if call % 2 == 1:
                self._look()
        return result

    def when_settled(self, then: Callable[[float], None]) -> None:
        """Call ``then`` with what a call gains, once it is known which of the two serves."""
        self._then.append(then)

    def instead(self, ours: Runner, own: Runner) -> Proving:
        """The same trial of these two."""
        trial = Proving(ours, own)
        trial._then = self._then
        return trial

    def _look(self) -> None:
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
