"""What NVML is asked, and what is made of its answers. A real one is asked in tests/gpu."""

from __future__ import annotations

import pytest
import torch

from convwright.measuring.hardware import nvml
from convwright.measuring.hardware.nvml import Gpu, driver_version, gpu, gpu_of
from measuring.fake_nvml import (
    APPLICATIONS_CLOCK,
    CLOCK_INFO,
    ENERGY,
    EVENT_REASONS,
    MAX_CLOCK_INFO,
    TEMPERATURE,
    THROTTLE_REASONS,
    FakeNvml,
)

SM, MEMORY, SENSOR = 1, 2, 0


def test_each_question_goes_to_its_function_with_its_selector() -> None:
    fake = FakeNvml({
        (CLOCK_INFO, SM): 1755, (CLOCK_INFO, MEMORY): 3201, (MAX_CLOCK_INFO, SM): 1980, (TEMPERATURE, SENSOR): 41,
        EVENT_REASONS: 0x004, ENERGY: 2**40,
    })  # fmt: skip
    asked = gpu("GPU-1", fake)
    assert (asked.sm_clock_mhz, asked.memory_clock_mhz, asked.full_sm_clock_mhz) == (1755, 3201, 1980)
    assert (asked.temperature_c, asked.throttle_reasons, asked.energy_mj) == (41, 0x004, 2**40)


def test_a_lower_clock_set_for_applications_is_the_full_one() -> None:
    fake = FakeNvml({MAX_CLOCK_INFO: 1410, APPLICATIONS_CLOCK: 1095})
    assert gpu("GPU-1", fake).full_sm_clock_mhz == 1095


def test_older_drivers_know_the_older_name_only() -> None:
    fake = FakeNvml({THROTTLE_REASONS: 0x040}, absent=(EVENT_REASONS,))
    assert gpu("GPU-1", fake).throttle_reasons == 0x040


ANSWERS = [
    "sm_clock_mhz", "memory_clock_mhz", "full_sm_clock_mhz", "temperature_c", "throttle_reasons", "energy_mj",
]  # fmt: skip


@pytest.mark.parametrize("name", ANSWERS)
def test_what_is_not_supported_or_not_there_is_none(name: str) -> None:
    assert getattr(gpu("GPU-1", FakeNvml({})), name) is None
    assert getattr(gpu("GPU-2", FakeNvml({CLOCK_INFO: 1000})), name) is None
    assert getattr(gpu("GPU-1", None), name) is None
    assert getattr(Gpu(), name) is None


def test_a_device_that_is_no_gpu_answers_nothing() -> None:
    assert gpu_of("cpu").library is None
    if not torch.cuda.is_available():
        assert gpu_of("cuda:0").library is None


def test_the_driver_version() -> None:
    assert driver_version(FakeNvml({"nvmlSystemGetDriverVersion": "570.86.15"})) == "570.86.15"
    assert driver_version(None) is None


class Initialised:
    def nvmlInit_v2(self) -> int:  # noqa: N802
        return 0


class WithoutDriver:
    def nvmlInit_v2(self) -> int:  # noqa: N802
        return 9


def test_loading(monkeypatch: pytest.MonkeyPatch) -> None:
    for made, there in ((Initialised(), True), (WithoutDriver(), False), (object(), False)):
        monkeypatch.setattr(nvml.ctypes, "CDLL", lambda _, made=made: made)
        assert (nvml.library.__wrapped__() is made) == there
    monkeypatch.setattr(nvml, "_LIBRARY", "libthere-is-none.so")
    monkeypatch.undo()


def test_a_library_that_is_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nvml, "_LIBRARY", "libthere-is-none.so.1")
    assert nvml.library.__wrapped__() is None
