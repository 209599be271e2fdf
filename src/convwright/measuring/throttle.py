"""Was the device slowed down meanwhile? What was timed then does not count."""

from __future__ import annotations

from typing import Protocol

from convwright.measuring.clock import Clock, CudaGraphClock
from convwright.measuring.nvml import IDLE, SLOWDOWN, Gpu, gpu_of, reasons_in_words

# NVBench discards below the same share.
_LEAST_CLOCK_SHARE = 0.75


class Watch(Protocol):
    """Looks at a device from time to time. A look is cheap, but not as cheap as a sample."""

    def slowed(self) -> str | None:
        """Why what has just run was slower than the device is; None where nothing speaks against it."""


class Unwatched:
    """Stands for a device that tells nothing of itself."""

    def slowed(self) -> None:
        return None


class GpuWatch:
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


def watch_of(clock: Clock) -> Watch:
    """A look at the device whose time ``clock`` tells. What a call costs the host does not depend on a GPU's clock."""
    return GpuWatch(gpu_of(clock.device)) if isinstance(clock, CudaGraphClock) else Unwatched()
