"""The state of a GPU from NVML, a library that comes with the driver."""

from __future__ import annotations

import ctypes
import sys
from ctypes import byref, c_char_p, c_uint, c_ulonglong, c_void_p
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import torch

_LIBRARY = "nvml.dll" if sys.platform == "win32" else "libnvidia-ml.so.1"
_SUCCESS = 0
_SM, _MEMORY = 1, 2  # nvmlClockType_t
_GPU_SENSOR = 0  # nvmlTemperatureSensors_t
_VERSION_BYTES = 80

IDLE = 0x001
# Reasons for a clock below the highest, by NVML's bits. Idling is left out: nothing runs then.
REASONS = {
    0x002: "applications-clocks",
    0x004: "power-cap",
    0x008: "hw-slowdown",
    0x010: "sync-boost",
    0x020: "sw-thermal",
    0x040: "hw-thermal",
    0x080: "hw-power-brake",
    0x100: "display-clocks",
}
SLOWDOWN = 0x008 | 0x020 | 0x040 | 0x080


def reasons_in_words(mask: int) -> str:
    """The reasons in ``mask`` by name.

    >>> reasons_in_words(0x044), reasons_in_words(0)
    ('power-cap+hw-thermal', 'none')
    """
    return "+".join(reason for bit, reason in REASONS.items() if mask & bit) or "none"


@dataclass(frozen=True, slots=True)
class Gpu:
    """One GPU. A value is None if this GPU or driver does not provide it; all are None without NVML."""

    library: Any = None
    handle: c_void_p | None = None

    @property
    def sm_clock_mhz(self) -> int | None:
        return self._ask(("nvmlDeviceGetClockInfo",), c_uint(), _SM)

    @property
    def memory_clock_mhz(self) -> int | None:
        return self._ask(("nvmlDeviceGetClockInfo",), c_uint(), _MEMORY)

    @property
    def full_sm_clock_mhz(self) -> int | None:
        """The highest SM clock allowed now: the GPU's own, or a lower one set for applications."""
        highest = self.highest_sm_clock_mhz
        allowed = self._ask(("nvmlDeviceGetApplicationsClock",), c_uint(), _SM)
        return min(highest, allowed) if highest and allowed else highest or allowed

    @property
    def highest_sm_clock_mhz(self) -> int | None:
        """The GPU's highest SM clock, whatever is set for applications: the bound of any rate."""
        return self._ask(("nvmlDeviceGetMaxClockInfo",), c_uint(), _SM)

    @property
    def temperature_c(self) -> int | None:
        return self._ask(("nvmlDeviceGetTemperature",), c_uint(), _GPU_SENSOR)

    @property
    def throttle_reasons(self) -> int | None:
        """Why the clock is below the highest now: bits of ``REASONS``, and ``IDLE``."""
        # Renamed in driver 535; the older name will be removed.
        names = ("nvmlDeviceGetCurrentClocksEventReasons", "nvmlDeviceGetCurrentClocksThrottleReasons")
        return self._ask(names, c_ulonglong())

    @property
    def energy_mj(self) -> int | None:
        """Energy drawn since the driver was loaded. Volta and newer."""
        return self._ask(("nvmlDeviceGetTotalEnergyConsumption",), c_ulonglong())

    def _ask(self, names: tuple[str, ...], answer: c_uint | c_ulonglong, *which: int) -> int | None:
        for name in names:
            function = getattr(self.library, name, None)
            if function is not None:
                return answer.value if function(self.handle, *which, byref(answer)) == _SUCCESS else None
        return None


def gpu_of(device: torch.device | str) -> Gpu:
    """The GPU of a PyTorch CUDA device; for any other device, one whose values are all None."""
    if torch.device(device).type != "cuda":
        return Gpu()
    try:
        uuid = torch.cuda.get_device_properties(device).uuid
    except (RuntimeError, AssertionError, AttributeError):  # PyTorch sees no such device, or reports no UUID
        return Gpu()
    return gpu(f"GPU-{uuid}", library())


@lru_cache(maxsize=16)
def gpu(uuid: str, nvml: Any) -> Gpu:
    """The GPU with this UUID; PyTorch's and NVML's numbers differ if CUDA_VISIBLE_DEVICES is set."""
    handle = c_void_p()
    if nvml is None or nvml.nvmlDeviceGetHandleByUUID(c_char_p(uuid.encode()), byref(handle)) != _SUCCESS:
        return Gpu()
    return Gpu(nvml, handle)


def driver_version(nvml: Any) -> str | None:
    """The driver's version, such as 570.86.15; None without NVML."""
    if nvml is None:
        return None
    text = ctypes.create_string_buffer(_VERSION_BYTES)
    answers = nvml.nvmlSystemGetDriverVersion(text, c_uint(_VERSION_BYTES)) == _SUCCESS
    return text.value.decode(errors="replace") if answers else None


@lru_cache(maxsize=1)
def library() -> Any:
    """NVML, loaded and initialised; None without a driver."""
    try:
        nvml = ctypes.CDLL(_LIBRARY)
        return nvml if nvml.nvmlInit_v2() == _SUCCESS else None
    except (OSError, AttributeError):
        return None
