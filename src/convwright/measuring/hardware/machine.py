"""The facts of this machine's CPU and GPUs."""

from __future__ import annotations

import os
import platform
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch

from convwright import strict_json
from convwright.core.device import DeviceFacts
from convwright.core.dtype import Arithmetic
from convwright.core.profiles import names, profile, profile_for
from convwright.errors import BadInput
from convwright.measuring.hardware.nvml import gpu_of
from convwright.uncompiled import uncompiled

_CPUINFO = Path("/proc/cpuinfo")
_CPUS = Path("/sys/devices/system/cpu")
# These drivers report the highest boost clock. Others may report the nominal one, which a core can exceed.
_DRIVERS_THAT_TELL_BOOST = ("intel_pstate", "intel_cpufreq", "amd-pstate", "amd-pstate-epp")
# No x86 core issues more than two fused multiply-adds of its widest vectors per cycle.
_FMAS_PER_CYCLE = 2


@uncompiled()
def device_facts(device: str | torch.device | DeviceFacts | None = None) -> DeviceFacts:
    """The facts of a device: one here ("cpu", "cuda", "cuda:1"), one by name ("h200"), or the best here (None)."""
    if isinstance(device, DeviceFacts):
        return device
    if device is None:
        device = "cuda" if torch.cuda.is_available() else "cpu"
    if not isinstance(device, str | torch.device):
        raise BadInput(f"`device` must be a name, such as 'cpu', 'cuda:0' or 'h200', got {device!r}")
    name = str(device).lower()
    if name == "cpu":
        return _cpu(torch.get_num_threads())
    if name.split(":")[0] == "cuda":
        if not torch.cuda.is_available():
            raise BadInput(f"device {name!r} was asked for, but PyTorch sees no CUDA device on this machine")
        return _cuda(_index_of(name))
    if name in names():
        return profile(name)
    return profile_for(str(device)) or profile(str(device))


def _index_of(name: str) -> int:
    """The index of ``cuda`` or ``cuda:1`` among the GPUs here."""
    number, count = name.partition(":")[2], torch.cuda.device_count()
    if name == "cuda":
        return torch.cuda.current_device()
    if not (number.isdecimal() and int(number) < count):
        raise BadInput(f"device {name!r} was asked for, and the CUDA devices here are cuda:0 to cuda:{count - 1}")
    return int(number)


def as_current(device: DeviceFacts) -> AbstractContextManager[object]:
    """Make a GPU of this machine the current one, for kernel launches and allocations."""
    here = device.kind == "cuda" and device.torch_name is not None
    return torch.cuda.device(device.torch_name) if here else nullcontext()


def free_memory_bytes(device: DeviceFacts) -> int | None:
    """Free memory of a GPU now, or all memory of a CPU; None for a device not in this machine."""
    if device.torch_name is None:
        return None
    if device.kind == "cuda":
        free, _total = torch.cuda.mem_get_info(device.torch_name)
        return (
            int(free) + torch.cuda.memory_reserved(device.torch_name) - torch.cuda.memory_allocated(device.torch_name)
        )
    return device.memory_bytes


@lru_cache
def _cpu(threads: int) -> DeviceFacts:
    core = read_core()
    return DeviceFacts(
        name=core.model or "a CPU",
        kind="cpu",
        architecture=core.architecture,
        torch_name="cpu",
        threads=threads,
        clock_mhz=core.highest_mhz,
        memory_bytes=_memory_bytes(),
        # No program can read the speed of memory, so a CPU has no bytes limit.
        bandwidth_bytes_per_us=None,
        peak_flops_per_us=core.peaks(threads),
    )


@lru_cache
def _cuda(index: int) -> DeviceFacts:
    live = torch.cuda.get_device_properties(index)
    known = profile_for(live.name)
    facts = DeviceFacts(
        name=live.name,
        kind="cuda",
        architecture=f"sm_{live.major}{live.minor}",
        torch_name=f"cuda:{index}",
        sm_count=live.multi_processor_count,
        clock_mhz=_highest_clock_mhz(index, live),
        memory_bytes=live.total_memory,
        cache_bytes=live.L2_cache_size or None,
    )
    return facts if known is None else with_rates_of(known, facts)


def with_rates_of(known: DeviceFacts, live: DeviceFacts) -> DeviceFacts:
    """A live device completed with facts that only its profile has.

    The driver's multiprocessor count and clocks take precedence: a slice of a GPU has fewer multiprocessors, and cards
    of one name have different clocks.
    """
    sm_count, clock_mhz = live.sm_count or known.sm_count or 0, live.clock_mhz or known.clock_mhz or 0
    properties = strict_json.loads(known.properties_json or "{}")
    properties |= {"multiProcessorCount": sm_count, "totalGlobalMem": live.memory_bytes, "deviceName": live.name}
    return replace(
        live,
        clock_mhz=clock_mhz or None,
        bandwidth_bytes_per_us=known.bandwidth_bytes_per_us,
        peak_flops_per_us=known.peaks_with(sm_count, clock_mhz),
        properties_json=strict_json.dumps(properties, compact=True),
    )


def _highest_clock_mhz(index: int, live: Any) -> int | None:
    """The highest clock from NVML. CUDA's value, in kHz and not in every PyTorch, is exceeded by GeForce cards."""
    from_cuda = getattr(live, "clock_rate", 0) // 1000
    return gpu_of(f"cuda:{index}").highest_sm_clock_mhz or from_cuda or None


def _memory_bytes() -> int | None:
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (ValueError, OSError):
        return None


@dataclass(frozen=True, slots=True)
class CpuCore:
    """``vector_bytes`` is the width of the widest fused multiply-add. Unknown is None."""

    model: str
    architecture: str
    vector_bytes: int | None = None
    highest_mhz: int | None = None

    def peaks(self, threads: int) -> tuple[tuple[Arithmetic, float], ...]:
        """Floating-point operations per microsecond of as many cores as threads.

        fp16 and bf16 are left out: matrix units and dot products are many times faster than vectors.

        >>> CpuCore("a CPU", "x86_64", vector_bytes=32, highest_mhz=3000).peaks(threads=2)
        ((<Arithmetic.FP64: 'fp64'>, 96000.0), (<Arithmetic.FP32: 'fp32'>, 192000.0))
        """
        if self.vector_bytes is None or self.highest_mhz is None:
            return ()
        bytes_per_us = threads * self.highest_mhz * _FMAS_PER_CYCLE * self.vector_bytes
        return (Arithmetic.FP64, 2.0 * bytes_per_us / 8), (Arithmetic.FP32, 2.0 * bytes_per_us / 4)


def read_core(cpuinfo: Path = _CPUINFO, cpus: Path = _CPUS) -> CpuCore:
    """The core as described by Linux; on other systems little more than its name is known."""
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
    """The vector width from x86's flags. ARM's flags do not show how many multiply-adds a core issues at once."""
    if "avx512f" in flags:
        return 64
    return 32 if "fma" in flags and "avx2" in flags else None


def _highest_mhz(cpus: Path) -> int | None:
    """The highest clock of any core, if the clock driver reports it. In virtual machines none does."""
    found = [
        int(text_of(policy / "cpuinfo_max_freq")) // 1000
        for policy in cpus.glob("cpu[0-9]*/cpufreq")
        if text_of(policy / "scaling_driver") in _DRIVERS_THAT_TELL_BOOST
        and text_of(policy / "cpuinfo_max_freq").isdigit()
    ]
    return max(found, default=0) or None


def text_of(file: Path) -> str:
    """The contents of a system file; "" if it does not exist, or only root may read it."""
    try:
        return file.read_text().strip()
    except OSError:
        return ""
