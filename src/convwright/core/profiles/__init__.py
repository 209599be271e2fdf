"""Devices as data: one JSON record each, with the source of every figure."""

from __future__ import annotations

from functools import lru_cache
from importlib import resources
from typing import Any

from convwright import strict_json
from convwright.core.device import DeviceFacts
from convwright.core.dtype import Arithmetic
from convwright.errors import BadInput


def names() -> tuple[str, ...]:
    """The devices that are known by name."""
    return tuple(sorted(f.name[:-5] for f in resources.files(__name__).iterdir() if f.name.endswith(".json")))


@lru_cache
def record(name: str) -> dict[str, Any]:
    """The record of the device ``name``: the datasheet's rates with their clocks, and the property record that cuDNN
    plans from."""
    if name not in names():
        raise BadInput(f"device must be cpu, cuda, cuda:1, … or one of {', '.join(names())}, got {name!r}")
    read: dict[str, Any] = strict_json.loads((resources.files(__name__) / f"{name}.json").read_text())
    return read


@lru_cache
def profile(name: str) -> DeviceFacts:
    """The facts of the device ``name``. Its peaks are for all multiprocessors at ``clock_mhz``.

    >>> profile("h200").sm_count
    132
    """
    written = record(name)
    properties, rates = written["properties"], written["peak_tflops"]
    clock_mhz = properties["smClockRateKHz"] // 1000
    return DeviceFacts(
        name=properties["deviceName"],
        kind="cuda",
        architecture=f"sm_{properties['deviceVer'] // 10}",
        sm_count=properties["multiProcessorCount"],
        clock_mhz=clock_mhz,
        memory_bytes=properties["totalGlobalMem"],
        cache_bytes=properties["l2CacheSize"],
        bandwidth_bytes_per_us=written["bandwidth_gb_per_s"] * 1e3,
        # Datasheets give some rates at a lower clock than the highest. Short kernels run at the highest, and a limit
        # must hold for them too.
        peak_flops_per_us=tuple(
            (Arithmetic(rate), tera * 1e6 * clock_mhz / written["peak_clock_mhz"][rate]) for rate, tera in rates.items()
        ),
        properties_json=strict_json.dumps(properties, compact=True),
        source=written["source"],
    )


def profile_for(device_name: str) -> DeviceFacts | None:
    """The profile for the driver's ``device_name``, if there is one.

    A slice of a GPU (MIG) has its whole GPU's profile.

    >>> profile_for("NVIDIA A100-SXM4-80GB MIG 3g.40gb") is profile("a100")
    True
    """
    whole = device_name.partition(" MIG ")[0]
    return next((profile(name) for name in names() if whole in _called(record(name))), None)


def _called(written: dict[str, Any]) -> tuple[str, ...]:
    return written["properties"]["deviceName"], *written.get("also", ())
