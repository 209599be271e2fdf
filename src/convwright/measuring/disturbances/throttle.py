"""Was the device slowed down meanwhile? What was timed then does not count."""

from __future__ import annotations

from collections.abc import Sequence

from convwright.measuring.clock import Clock, CudaGraphClock, HostClock, WallClock
from convwright.measuring.disturbances.waiting import MOST_WAITING, Waiting
from convwright.measuring.hardware.nvml import IDLE, SLOWDOWN, Gpu, gpu_of, reasons_in_words

# NVBench discards below the same share.
_LEAST_CLOCK_SHARE = 0.75


class Watch:
    """Looks at a device from time to time; this one at a device that tells nothing of itself.

    A look is cheap, but not as cheap as a sample: one look serves the rounds of ``every_us``. What slows it ``passes``
    where it is other work, and not how the device is set or cooled.
    """

    every_us = 20_000.0
    passes = False

    def slowed(self) -> str | None:
        """Why what has run since the last look was slower than the device is; None where nothing speaks against it."""
        return None

    def complaint(self, slowed: Sequence[str], discarded: int) -> str | None:
        """What the reasons for which rounds were slow say against the rounds that count, and the cure."""
        if not slowed:
            return None
        most = max(set(slowed), key=slowed.count)
        fate = f"{discarded} rounds were discarded" if discarded else f"{_all(slowed)} were run"
        return f"{fate} with the device {most}: lock the clocks at what it can hold, cool it, or stop other work on it"


class GpuWatch(Watch):
    """A GPU that is too hot, that its power supply slows down, or whose SM clock is below 75 % of the full one.

    The power limit is no reason: what runs under it runs as fast as the GPU can.
    """

    def __init__(self, gpu: Gpu) -> None:
        self._gpu = gpu
        self._full_mhz = gpu.full_sm_clock_mhz or 0

    def slowed(self) -> str | None:
        reasons, clock_mhz = self._gpu.throttle_reasons or 0, self._gpu.sm_clock_mhz
        if reasons & SLOWDOWN:
            return f"slowed down ({reasons_in_words(reasons & SLOWDOWN)})"
        # An idle GPU lowers its clock; that is not the clock at which the work was done.
        if clock_mhz is None or reasons & IDLE or clock_mhz >= _LEAST_CLOCK_SHARE * self._full_mhz:
            return None
        return f"at an SM clock of {clock_mhz} MHz of {self._full_mhz}"


class HostWatch(Watch):
    """The cores of the host, which others may have while this process waits for them.

    Other work comes in stretches, and what ran between those is undisturbed: rounds that were discarded say nothing
    against the rest.
    """

    # As long as the system lets one process have a core, so that one look does not spoil what ran before and after.
    every_us = 1000.0
    passes = True

    def __init__(self) -> None:
        self._waiting = Waiting()

    def slowed(self) -> str | None:
        share = self._waiting.share()
        return None if share is None or share < MOST_WAITING else "waiting for a core"

    def complaint(self, slowed: Sequence[str], discarded: int) -> str | None:
        if not slowed or discarded:
            return None
        return f"{_all(slowed)} were disturbed by other work: stop it, or run while there is less of it"


def _all(slowed: Sequence[str]) -> str:
    return f"{len(slowed)} round{'s' * (len(slowed) > 1)}, too many to discard,"


def watch_of(clock: Clock) -> Watch:
    """A look at the device whose time ``clock`` tells. What a call costs the host does not depend on a GPU's clock."""
    if isinstance(clock, CudaGraphClock):
        return GpuWatch(gpu_of(clock.device))
    return HostWatch() if isinstance(clock, WallClock) and not isinstance(clock, HostClock) else Watch()
