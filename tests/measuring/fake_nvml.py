"""NVML, played by an object: it answers as told, and as the library does writes its answers behind pointers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

NOT_SUPPORTED, NOT_FOUND = 3, 6
CLOCK_INFO, MAX_CLOCK_INFO = "nvmlDeviceGetClockInfo", "nvmlDeviceGetMaxClockInfo"
APPLICATIONS_CLOCK = "nvmlDeviceGetApplicationsClock"
TEMPERATURE, ENERGY = "nvmlDeviceGetTemperature", "nvmlDeviceGetTotalEnergyConsumption"
EVENT_REASONS = "nvmlDeviceGetCurrentClocksEventReasons"
THROTTLE_REASONS = "nvmlDeviceGetCurrentClocksThrottleReasons"


class FakeNvml:
    """``answers`` has values by function, or by function and selector; a value may be a list, taken one by one.

    A function without an answer says that it is not supported, one in ``absent`` does not exist.
    """

    def __init__(self, answers: dict[Any, Any], *, uuid: str = "GPU-1", absent: tuple[str, ...] = ()) -> None:
        self.answers, self.uuid, self.absent = answers, uuid, absent
        self.asked: list[str] = []

    def __getattr__(self, name: str) -> Callable[..., int]:
        if not name.startswith("nvml") or name in self.absent:
            raise AttributeError(name)
        return lambda *arguments: self._answer(name, arguments)

    def _answer(self, name: str, arguments: tuple[Any, ...]) -> int:
        self.asked.append(name)
        if name == "nvmlDeviceGetHandleByUUID":
            if arguments[0].value.decode() != self.uuid:
                return NOT_FOUND
            arguments[1]._obj.value = 77
            return 0
        if name == "nvmlSystemGetDriverVersion":
            arguments[0].value = self.answers[name].encode()
            return 0
        assert arguments[0].value == 77
        selector = arguments[1] if len(arguments) == 3 else None
        value = self.answers.get((name, selector), self.answers.get(name))
        if isinstance(value, list):
            value = value.pop(0) if len(value) > 1 else value[0]
        if value is None:
            return NOT_SUPPORTED
        arguments[-1]._obj.value = value
        return 0
