"""Chosen candidates' first calls on a GPU, where all of them together have to be faster in use than PyTorch's own.

Where the device waits for the host it is the host's time that counts, and that depends on the company: of candidates
and PyTorch's own calls that take turns within a network each finds the caches full of the others. So all choices serve
for a season, then PyTorch's own calls for another, and so on. In a first year every call is timed, to see whose device
is behind, where what the search found out about its time decides, and which candidates are far worse than they seemed.
In the next everything runs as it would for good, but for a few layers by whose calls the time of a season is told. If
the choices make it surely longer, the worse half of them is given up, with all that seemed worse at all, and the rest
has another year.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable
from statistics import median
from threading import Lock
from time import perf_counter_ns
from typing import Any

import torch
from torch import Tensor

from convwright import flags
from convwright.ops.proving import Proving
from convwright.ops.runner import Runner
from convwright.tuning.choose import TIE

# A season lasts so many calls of one layer, and so long, at least. The first two of a year are not counted.
_CALLS, _LEAST_NS = 6, 10_000_000
_UNCOUNTED = 2
_PAIRS_AT_FIRST, _PAIRS = 1, 6
# By chance one of two equals is behind in so many of the pairs in one case of nine, and then by more than a tie.
_MOST_OF_THEM = 5
# A candidate for which the host takes so many times as long has lost, whatever the others do.
_LOST, _FEWEST_CALLS, _MOST_CALLS = 1.3, 4, 64
# After so many calls that found the device behind, its time decides.
_BEHIND = 12
# Of so many layers one tells the time, in case that the first of them comes no more, and that is after so long.
_TELLING, _PATIENCE_NS = 8, 2_000_000_000
# What is chosen gains something, if no time of the device.
_LEAST_GAIN_US = 1e-3
is_capturing: Any = torch._C._cuda_isCurrentStreamCapturing


def is_behind(device: torch.device) -> bool:
    """Whether PyTorch's current stream has something left to do."""
    return not torch.cuda.current_stream(device).query()


class Seasons:
    """Whose season it is on one device: ``ours`` or PyTorch's own."""

    def __init__(self) -> None:
        self.ours = False
        self._changing = Lock()
        self._members: weakref.WeakSet[Seasonal] = weakref.WeakSet()
        self._leader: Seasonal | None = None
        self._is_first_year = True
        self._calls, self._begun_ns, self._came_ns = 0, 0, 0
        self._each_ns: list[float] = []

    def join(self, member: Seasonal) -> None:
        """Begin anew, with one more."""
        with self._changing:
            self._members.add(member)
            self._is_first_year = True
            self._begin()

    def leave(self, member: Seasonal) -> None:
        """One that will not be called any more."""
        with self._changing:
            self._members.discard(member)

    def turn(self, member: Seasonal) -> bool:
        """Whether ``member`` is to run ours now."""
        with self._changing:
            now_ns, leader = perf_counter_ns(), self._leader
            if member is not leader:
                if leader is None or leader.gain_us is not None or now_ns - self._came_ns > _PATIENCE_NS:
                    self._begin(member)
                return self.ours
            self._came_ns = now_ns
            self._calls += 1
            taken_ns = now_ns - self._begun_ns
            if self._calls >= _CALLS and taken_ns >= _LEAST_NS:
                self._each_ns.append(taken_ns / self._calls)
                if len(self._each_ns) == _UNCOUNTED + 2 * (_PAIRS_AT_FIRST if self._is_first_year else _PAIRS):
                    self._end_year()
                else:
                    self.ours = not self.ours
                    self._serve()
                self._calls, self._begun_ns = 0, perf_counter_ns()
            return self.ours

    def _begin(self, leader: Seasonal | None = None) -> None:
        self.ours, self._leader = False, leader
        self._calls, self._each_ns = 0, []
        self._serve()
        self._begun_ns = self._came_ns = perf_counter_ns()

    def _serve(self) -> None:
        """Let the season's side serve, or all calls come by here in the first year."""
        for place, member in enumerate(self._contesting()):
            tells = self._is_first_year or member is self._leader or place % _TELLING == 0
            member.serve(None if tells else self.ours)

    def _contesting(self) -> list[Seasonal]:
        """Those that are not settled, the worse first."""
        return sorted((m for m in self._members if m.gain_us is None), key=lambda member: -member.times)

    def _end_year(self) -> None:
        members, own_ns, ours_ns = self._contesting(), self._each_ns[_UNCOUNTED::2], self._each_ns[_UNCOUNTED + 1 :: 2]
        if self._is_first_year:
            over, holds = [member for member in members if member.times > _LOST], False
        else:
            holds = not is_slower(ours_ns, own_ns)
            half = (len(members) + 1) // 2
            over = members if holds else [m for place, m in enumerate(members) if place < half or m.times > 1]
        self._is_first_year = False
        for member in over:
            self._members.discard(member)
            member.settle(holds=holds)
        self._begin()


class Seasonal(Proving):
    """``ours`` and ``own``, PyTorch's, by seasons, until it is known which serves.

    ``device_gain_us`` is what a call of ours gains where the device is behind. ``serve`` lets ours, PyTorch's own or
    this itself (True, False, None) serve calls, where whoever remembers it can.
    """

    __slots__ = ("__weakref__", "_behind", "_device", "_device_gain_us", "_seasons", "serve")

    def __init__(
        self, ours: Runner, own: Runner, seasons: Seasons, device: torch.device, device_gain_us: float
    ) -> None:
        super().__init__(ours, own)
        self._seasons, self._device, self._device_gain_us = seasons, device, device_gain_us
        self._behind = 0
        self.serve: Callable[[bool | None], None] = lambda mine: None
        seasons.join(self)

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
        if is_capturing() or flags.deterministic():
            return self.ours(first, second, bias, residual, out)
        mine = self._seasons.turn(self)
        behind = is_behind(self._device)
        begun_ns = perf_counter_ns()
        result = (self.ours if mine else self.own)(first, second, bias, residual, out)
        taken_ns = perf_counter_ns() - begun_ns
        times_ns = self._ours_ns if mine else self._own_ns
        if behind:
            self._behind += 1
            if self._behind == _BEHIND:
                self.settle(holds=True)
        elif len(times_ns) < _MOST_CALLS:
            times_ns.append(taken_ns)
            if len(times_ns) == 1:
                self._strides.add(result.stride())
                if len(self._strides) > 1:
                    self.settle(holds=False)  # whoever looks at a result's strides finds those that PyTorch gives
        return result

    @property
    def times(self) -> float:
        """How many times as long the host took for ours, as often as the device waited for it."""
        if min(len(self._ours_ns), len(self._own_ns)) < _FEWEST_CALLS:
            return 1.0
        return median(self._ours_ns) / median(self._own_ns)

    def settle(self, *, holds: bool) -> None:
        """Serve from now on with ours, where what the search found out ``holds``, or else with PyTorch's own."""
        self._settle(max(self._device_gain_us, _LEAST_GAIN_US) if holds else 0.0)

    def instead(self, ours: Runner, own: Runner) -> Seasonal:
        trial = Seasonal(ours, own, self._seasons, self._device, self._device_gain_us)
        trial._then = self._then
        self._seasons.leave(self)
        return trial


def is_slower(ours_ns: Iterable[float], own_ns: Iterable[float]) -> bool:
    """Whether ours surely takes longer, from seasons of both in pairs.

    >>> is_slower([110.0] * 6, [100.0] * 6), is_slower([100.5] * 6, [100.0] * 6)
    (True, False)
    """
    pairs = list(zip(ours_ns, own_ns, strict=True))
    behind = sum(ours > own for ours, own in pairs)
    ours, own = (median(each) for each in zip(*pairs, strict=True))
    return behind >= _MOST_OF_THEM and ours > (1 + TIE) * own


_by_device: dict[torch.device, Seasons] = {}


def seasons_on(device: torch.device) -> Seasons:
    """All choices that serve calls on one device share its seasons."""
    return _by_device.setdefault(device, Seasons())
