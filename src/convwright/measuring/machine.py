"""The facts of the machine at hand: its CPU, its GPUs."""

from __future__ import annotations

import json
import os
import platform
from functools import lru_cache
from pathlib import Path

import torch

from convwright.core.device import DeviceFacts
from convwright.core.profiles import profile, profile_for
from convwright.errors import BadInput


def device_facts(device: str | torch.device | DeviceFacts | None = None) -> DeviceFacts:
    """The facts of a device: present ("cpu", "cuda", "cuda:1"), elsewhere ("h200"), or the best one here (None)."""
    if isinstance(device, DeviceFacts):
        return device
    if device is None:
        device = "cuda" if torch.cuda.is_available() else "cpu"
    name = str(device)
    if name == "cpu":
        return _cpu(torch.get_num_threads())
    if name.split(":")[0] == "cuda":
        if not torch.cuda.is_available():
            raise BadInput(f"device {name!r} was asked for, but PyTorch sees no CUDA device on this machine")
        index = torch.device(name).index
        return _cuda(torch.cuda.current_device() if index is None else index)
    return profile(name)


def free_memory_bytes(device: DeviceFacts) -> int | None:
    """What is free on a device now; None where it is elsewhere."""
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
    # Peak and bandwidth of a CPU are not written anywhere that can be trusted, so its limits are unknown.
    return DeviceFacts(
        name=_cpu_name(),
        kind="cpu",
        architecture=platform.machine(),
        torch_name="cpu",
        threads=threads,
        memory_bytes=_memory_bytes(),
    )


@lru_cache
def _cuda(index: int) -> DeviceFacts:
    properties = torch.cuda.get_device_properties(index)
    known = profile_for(properties.name)
    if known is not None:
        record = json.loads(known.properties_json or "{}")
        assert record["multiProcessorCount"] == properties.multi_processor_count, "a profile must match its device"
    return DeviceFacts(
        name=properties.name,
        kind="cuda",
        architecture=f"sm_{properties.major}{properties.minor}",
        torch_name=f"cuda:{index}",
        sm_count=properties.multi_processor_count,
        clock_mhz=known.clock_mhz if known else None,
        memory_bytes=properties.total_memory,
        cache_bytes=properties.L2_cache_size,
        bandwidth_bytes_per_us=known.bandwidth_bytes_per_us if known else None,
        peak_flops_per_us=known.peak_flops_per_us if known else (),
        properties_json=known.properties_json if known else None,
    )


def _cpu_name() -> str:
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        fields = dict(line.split(":", 1) for line in cpuinfo.read_text().splitlines() if ":" in line)
        names = {name.strip(): value.strip() for name, value in fields.items()}
        if "model name" in names:
            return names["model name"]
    return platform.processor() or platform.machine()


def _memory_bytes() -> int | None:
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (ValueError, OSError):
        return None
