"""What one core of this machine's CPU can do at most, as far as the system tells."""

from __future__ import annotations

import platform
from dataclasses import dataclass
from pathlib import Path

from convwright.core.dtype import Arithmetic
from convwright.measuring.hardware.kernel_files import text_of

_CPUINFO = Path("/proc/cpuinfo")
_CPUS = Path("/sys/devices/system/cpu")
# These tell the highest boost clock. Others may tell the nominal one, which a core can run faster than.
_DRIVERS_THAT_TELL_BOOST = ("intel_pstate", "intel_cpufreq", "amd-pstate", "amd-pstate-epp")
# No x86 core issues more than two fused multiply-adds of its widest vectors at once.
_FMAS_PER_CYCLE = 2


@dataclass(frozen=True, slots=True)
class CpuCore:
    """``vector_bytes`` is the width of its widest fused multiply-add; None is what cannot be known."""

    model: str
    architecture: str
    vector_bytes: int | None = None
    highest_mhz: int | None = None

    def peaks(self, threads: int) -> tuple[tuple[Arithmetic, float], ...]:
        """Floating-point operations per microsecond of as many cores as there are threads.

        Of fp16 and bf16 nothing is said: matrix units and dot products compute those many times faster.

        >>> CpuCore("a CPU", "x86_64", vector_bytes=32, highest_mhz=3000).peaks(threads=2)
        ((<Arithmetic.FP64: 'fp64'>, 96000.0), (<Arithmetic.FP32: 'fp32'>, 192000.0))
        """
        if self.vector_bytes is None or self.highest_mhz is None:
            return ()
        bytes_per_us = threads * self.highest_mhz * _FMAS_PER_CYCLE * self.vector_bytes
        return (Arithmetic.FP64, 2.0 * bytes_per_us / 8), (Arithmetic.FP32, 2.0 * bytes_per_us / 4)


def read_core(cpuinfo: Path = _CPUINFO, cpus: Path = _CPUS) -> CpuCore:
    """The core as Linux describes it; elsewhere little more than its name is known."""
    fields = _fields(cpuinfo)
    return CpuCore(
        model=fields.get("model name") or platform.processor() or platform.machine(),
        architecture=platform.machine(),
        vector_bytes=_vector_bytes(fields.get("flags", "").split()),
        highest_mhz=_highest_mhz(cpus),
    )


def _fields(cpuinfo: Path) -> dict[str, str]:
    lines = text_of(cpuinfo).splitlines()
    pairs = (line.split(":", 1) for line in lines if ":" in line)
    return {name.strip(): value.strip() for name, value in pairs}


def _vector_bytes(flags: list[str]) -> int | None:
    """By the flags of x86. ARM's do not tell how many multiply-adds a core issues at once."""
    if "avx512f" in flags:
        return 64
    return 32 if "fma" in flags and "avx2" in flags else None


def _highest_mhz(cpus: Path) -> int | None:
    """The highest clock of any core, where the system's driver for clocks tells it. In a virtual machine none does."""
    found = [
        int(text_of(policy / "cpuinfo_max_freq")) // 1000
        for policy in cpus.glob("cpu[0-9]*/cpufreq")
        if text_of(policy / "scaling_driver") in _DRIVERS_THAT_TELL_BOOST
        and text_of(policy / "cpuinfo_max_freq").isdigit()
    ]
    return max(found, default=0) or None
