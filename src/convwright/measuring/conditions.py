"""The conditions under which something was measured: no number without them."""

from __future__ import annotations

import platform
import subprocess
from functools import lru_cache
from importlib import import_module, metadata
from pathlib import Path
from typing import Any

import torch

from convwright.core.device import DeviceFacts

Conditions = tuple[tuple[str, str], ...]

_PACKAGE = Path(__file__).resolve().parents[1]

# NVML's reasons for a clock below the highest; idling is none, nothing runs then.
_THROTTLE_REASONS = {
    0x002: "applications-clocks",
    0x004: "power-cap",
    0x008: "hw-slowdown",
    0x010: "sync-boost",
    0x020: "sw-thermal",
    0x040: "hw-thermal",
    0x080: "hw-power-brake",
    0x100: "display-clocks",
}


def conditions(device: DeviceFacts) -> Conditions:
    """Names and values, units in the names. What cannot be known is absent. The date is the caller's to add.

    >>> from convwright.measuring.machine import device_facts
    >>> dict(conditions(device_facts("cpu")))["torch"] == torch.__version__
    True
    """
    found: dict[str, object] = {"device": device.name, **_software()}
    if device.kind == "cuda":
        found |= _cuda_software() | (_nvml(device) if device.present else {})
    else:
        found["threads"] = torch.get_num_threads() if device.present else device.threads
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
    cudnn: Any = torch.backends.cudnn  # Its functions have no types.
    return {
        "cuda": torch.version.cuda,
        "cudnn": cudnn.version(),
        "triton": _version("triton"),
        "driver": _driver(),
    }


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _commit() -> str | None:
    """The commit of the checkout that this package runs from, with "-dirty" where files differ from it."""
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
    told = Path("/proc/driver/nvidia/version")
    if not told.exists():
        return None
    words = told.read_text().splitlines()[0].split()
    return next((word for word in words if word.replace(".", "").isdigit() and "." in word), None)


def _nvml(device: DeviceFacts) -> dict[str, object]:
    """Clocks and what holds them down, asked anew each time; empty where NVML or a part of it is not to be had."""
    nvml = _nvml_library()
    if nvml is None:
        return {}
    try:
        uuid = f"GPU-{torch.cuda.get_device_properties(device.torch_name).uuid}"
        handle = nvml.nvmlDeviceGetHandleByUUID(uuid)
    except (nvml.NVMLError, RuntimeError):
        return {}
    questions = {
        "sm_clock_mhz": lambda: nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_SM),
        "memory_clock_mhz": lambda: nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_MEM),
        "temperature_c": lambda: nvml.nvmlDeviceGetTemperature(handle, nvml.NVML_TEMPERATURE_GPU),
        "throttle_reasons": lambda: _throttling(nvml.nvmlDeviceGetCurrentClocksThrottleReasons(handle)),
    }
    return {name: _answer(nvml, question) for name, question in questions.items()}


def _answer(nvml: Any, question: Any) -> object:
    try:
        return question()
    except nvml.NVMLError:
        return None


def _throttling(mask: int) -> str:
    return "+".join(reason for bit, reason in _THROTTLE_REASONS.items() if mask & bit) or "none"


@lru_cache(maxsize=1)
def _nvml_library() -> Any:
    try:
        nvml = import_module("pynvml")
    except ImportError:
        return None
    try:
        nvml.nvmlInit()
    except nvml.NVMLError:
        return None
    return nvml
