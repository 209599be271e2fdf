"""The conditions of a measurement, to be stored with every number."""

from __future__ import annotations

import platform
import re
import subprocess
from collections.abc import Mapping
from datetime import UTC, datetime
from functools import lru_cache
from importlib import metadata
from pathlib import Path
from typing import Any

import torch

from convwright.core.device import DeviceFacts
from convwright.flags import tf32_allowed
from convwright.measuring.hardware.nvml import Gpu, driver_version, gpu_of, library, reasons_in_words

Conditions = tuple[tuple[str, str], ...]

_PACKAGE = Path(__file__).resolve().parents[1]


def conditions(device: DeviceFacts) -> Conditions:
    """Names and values, with units in the names. Unknown conditions are left out. The caller adds the date.

    >>> from convwright.measuring.hardware.machine import device_facts
    >>> dict(conditions(device_facts("cpu")))["torch"] == torch.__version__
    True
    """
    found: dict[str, object] = {"device": device.name, **_software()}
    if device.kind == "cuda":
        found |= _cuda_software() | {"tf32": "allowed" if tf32_allowed() else "not allowed"}
        found |= dict(state(device))
    else:
        found |= {"onednn": _onednn(), "threads": torch.get_num_threads() if device.present else device.threads}
    return _known(found)


def state(device: DeviceFacts) -> Conditions:
    """Conditions that change all the time: a GPU's clocks and the reasons for low ones. An idle GPU has lower
    clocks."""
    if device.kind != "cuda" or device.torch_name is None:
        return ()
    return _known(_gpu_state(gpu_of(device.torch_name)))


def today() -> Conditions:
    """The date, in UTC."""
    return (("date", datetime.now(UTC).date().isoformat()),)


def _known(found: Mapping[str, object]) -> Conditions:
    return tuple((name, str(value)) for name, value in found.items() if value is not None)


@lru_cache(maxsize=1)
def _software() -> dict[str, object]:
    return {
        "convwright": _version("convwright"),
        "commit": _commit(),
        "torch": torch.__version__,
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.release()}",
    }


@lru_cache(maxsize=1)
def _cuda_software() -> dict[str, object]:
    cudnn: Any = torch.backends.cudnn  # its functions have no types
    return {
        "cuda": torch.version.cuda,
        "cudnn": cudnn.version(),
        "triton": _version("triton"),
        "driver": _driver(),
    }


@lru_cache(maxsize=1)
def _onednn() -> str | None:
    """oneDNN's version as part of PyTorch, which still uses the library's first name."""
    said = re.search(r"MKL-DNN v([\w.]+)", torch.__config__.show())
    return said[1] if said else None


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _commit() -> str | None:
    """The commit of the checkout that this package runs from, with "-dirty" if files differ from it."""
    checkout = _PACKAGE.parents[1]
    if not (checkout / ".git").exists():
        return None
    command = ["git", "-C", str(checkout), "describe", "--always", "--dirty", "--exclude=*", "--abbrev=40"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=10, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip() or None


def _driver() -> str | None:
    path = Path("/proc/driver/nvidia/version")
    if not path.exists():
        return driver_version(library())
    words = path.read_text().splitlines()[0].split()
    return next((word for word in words if word.replace(".", "").isdigit() and "." in word), None)


def _gpu_state(gpu: Gpu) -> dict[str, object]:
    """Clocks and the reasons for low ones, read again each time."""
    reasons = gpu.throttle_reasons
    return {
        "sm_clock_mhz": gpu.sm_clock_mhz,
        "memory_clock_mhz": gpu.memory_clock_mhz,
        "temperature_c": gpu.temperature_c,
        "throttle_reasons": None if reasons is None else reasons_in_words(reasons),
    }
