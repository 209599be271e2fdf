"""The peak rates of a device, with stated assumptions where its facts are incomplete."""

from __future__ import annotations

from dataclasses import dataclass

from convwright.core.device import DeviceFacts
from convwright.core.dtype import Arithmetic
from convwright.core.record import Record

# Assumptions for a CPU without known rates: 32-byte vectors, two multiply-adds a cycle, and one memory channel per two
# threads. A correction learned on the device absorbs their error.
_CPU_CLOCK_MHZ, _CPU_BYTES_PER_CYCLE, _CPU_BANDWIDTH_PER_THREAD = 2500.0, 64.0, 6000.0
# The same for a GPU, per multiprocessor.
_GPU_CLOCK_MHZ, _GPU_FLOPS_PER_CYCLE, _GPU_BANDWIDTH_PER_UNIT, _GPU_UNITS = 1500.0, 256.0, 15000.0, 100
# The time of an empty kernel, and of one of PyTorch's operators on a CPU.
_GPU_LAUNCH_US, _CPU_LAUNCH_US = 2.0, 5.0


@dataclass(frozen=True, slots=True)
class Rates(Record):
    """``units`` are multiprocessors or threads. ``launch_us`` is the time of an empty launch."""

    units: int
    bandwidth_bytes_per_us: float
    launch_us: float
    flops_per_us: tuple[tuple[Arithmetic, float], ...]

    def peak(self, arithmetic: Arithmetic) -> float:
        """Operations per µs of the unit that ``arithmetic`` runs on; the slowest unit if it has none."""
        known = dict(self.flops_per_us)
        return known.get(arithmetic.unit) or min(known.values())


def rates_of(device: DeviceFacts) -> Rates:
    """The rates of a device.

    >>> from convwright.core.profiles import profile
    >>> rates_of(profile("h200")).units, rates_of(profile("h200")).bandwidth_bytes_per_us
    (132, 4800000.0)
    """
    on_cpu = device.kind == "cpu"
    units = (device.threads or 1) if on_cpu else (device.sm_count or _GPU_UNITS)
    clock_mhz = device.clock_mhz or (_CPU_CLOCK_MHZ if on_cpu else _GPU_CLOCK_MHZ)
    bandwidth = device.bandwidth_bytes_per_us or units * (
        _CPU_BANDWIDTH_PER_THREAD if on_cpu else _GPU_BANDWIDTH_PER_UNIT
    )
    fp32 = units * clock_mhz * (2 * _CPU_BYTES_PER_CYCLE / 4 if on_cpu else _GPU_FLOPS_PER_CYCLE)
    peaks = device.peak_flops_per_us or ((Arithmetic.FP32, fp32), (Arithmetic.FP64, fp32 / 2))
    return Rates(units, bandwidth, _CPU_LAUNCH_US if on_cpu else _GPU_LAUNCH_US, peaks)
