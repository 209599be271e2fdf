"""Devices as data: one JSON record each, with the source of every figure."""

from __future__ import annotations

import json
from functools import lru_cache
from importlib import resources

from convwright.core.device import DeviceFacts
from convwright.core.dtype import Arithmetic
from convwright.errors import BadInput


def names() -> tuple[str, ...]:
    """The devices that can be asked about by name."""
    return tuple(sorted(f.name[:-5] for f in resources.files(__name__).iterdir() if f.name.endswith(".json")))


@lru_cache
def profile(name: str) -> DeviceFacts:
    """The facts of the device called ``name``.

    >>> profile("h200").sm_count
    132
    """
    if name not in names():
        raise BadInput(f"device must be one of {', '.join(names())}, or present, got {name!r}")
    record = json.loads((resources.files(__name__) / f"{name}.json").read_text())
    properties = record["properties"]
    return DeviceFacts(
        name=properties["deviceName"],
        kind="cuda",
        architecture=f"sm_{properties['deviceVer'] // 10}",
        sm_count=properties["multiProcessorCount"],
        clock_mhz=properties["smClockRateKHz"] // 1000,
        memory_bytes=properties["totalGlobalMem"],
        cache_bytes=properties["l2CacheSize"],
        bandwidth_bytes_per_us=record["bandwidth_gb_per_s"] * 1e3,
        peak_flops_per_us=tuple((Arithmetic(a), tera * 1e6) for a, tera in record["peak_tflops"].items()),
        properties_json=json.dumps(properties, separators=(",", ":")),
        source=record["source"],
    )


def profile_for(device_name: str) -> DeviceFacts | None:
    """The profile of the device that the driver calls ``device_name``, if there is one."""
    return next((facts for facts in map(profile, names()) if facts.name == device_name), None)
