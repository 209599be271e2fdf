"""Detect a slowed-down device: rounds timed then do not count."""

from __future__ import annotations

from collections.abc import Sequence

from convwright.measuring.clock import Clock, CudaGraphClock, HostClock, WallClock
from convwright.measuring.disturbances.waiting import MOST_WAITING, Waiting
from convwright.measuring.hardware.nvml import IDLE, SLOWDOWN, Gpu, gpu_of, reasons_in_words

# NVBench discards samples below the same share.
_LEAST_CLOCK_SHARE = 0.75


class Watch:
    """Checks a device now and then; this class is for a device without sensors.

    A check is cheap, but not as cheap as a sample, so one serves the rounds of ``every_us``. A disturbance ``passes``
    if it is other work, rather than the device's settings or cooling.
    """

    every_us = 20_000.0
    passes = False

    def slowed(self) -> str | None:
        """Why rounds since the last check were slow; None if nothing was wrong."""
        return None

    def complaint(self, slowed: Sequence[str], discarded: int) -> str | None:
        """The objection to the rounds that count, from the reasons of slow ones, with a remedy."""
        if not slowed:
            return None
        most = max(set(slowed), key=slowed.count)
        fate = f"{discarded} rounds were discarded" if discarded else f"{_all(slowed)} were run"
        return f"{fate} with the device {most}: lock the clocks at what it can hold, cool it, or stop other work on it"


class GpuWatch(Watch):
    """Watches a GPU for overheating, slowdown by its power supply, and an SM clock below 75 % of the full one.

    The power limit does not count: under it a GPU runs as fast as it can.
    """

    def __init__(self, gpu: Gpu) -> None:
        self._gpu = gpu
        self._full_mhz = gpu.full_sm_clock_mhz or 0

    def slowed(self) -> str | None:
        reasons, clock_mhz = self._gpu.throttle_reasons or 0, self._gpu.sm_clock_mhz
        if reasons & SLOWDOWN:
            return f"slowed down ({reasons_in_words(reasons & SLOWDOWN)})"
        # An idle GPU lowers its clock; that was not the clock during the work.
        if clock_mhz is None or reasons & IDLE or clock_mhz >= _LEAST_CLOCK_SHARE * self._full_mhz:
            return None
        return f"at an SM clock of {clock_mhz} MHz of {self._full_mhz}"


class HostWatch(Watch):
    """Watches the host's cores, which other processes may use while this one waits.

    Other work comes in bursts, and rounds between them are undisturbed: discarded rounds are no objection to the rest.
    """

    # The system's time slice for a process, so that one check does not spoil the rounds before and after.
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
    """The watch for the device that ``clock`` times. A call's host time does not depend on a GPU's clock."""
    if isinstance(clock, CudaGraphClock):
        return GpuWatch(gpu_of(clock.device))
    return HostWatch() if isinstance(clock, WallClock) and not isinstance(clock, HostClock) else Watch()
