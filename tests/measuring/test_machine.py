"""The facts of a live GPU: the driver's word on multiprocessors and clocks, its profile's on rates."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from convwright.core.device import DeviceFacts
from convwright.core.dtype import Arithmetic
from convwright.core.profiles import profile
from convwright.errors import BadInput
from convwright.measuring.hardware import machine
from convwright.measuring.hardware.machine import device_facts, with_rates_of

A100 = profile("a100")
LIVE = DeviceFacts(
    "NVIDIA A100-SXM4-80GB", "cuda", "sm_80", torch_name="cuda:0", sm_count=108, clock_mhz=1410,
    memory_bytes=85_100_068_864, cache_bytes=40 << 20,
)  # fmt: skip


def test_a_device_like_its_profile_has_the_profiles_rates() -> None:
    facts = with_rates_of(A100, LIVE)
    assert facts.peak_flops_per_us == A100.peak_flops_per_us
    assert facts.bandwidth_bytes_per_us == A100.bandwidth_bytes_per_us
    assert (facts.torch_name, facts.source) == ("cuda:0", "machine")
    assert facts.properties_json == A100.properties_json


def test_a_slice_has_the_rates_of_its_multiprocessors() -> None:
    name = "NVIDIA A100-SXM4-80GB MIG 3g.40gb"
    facts = with_rates_of(A100, replace(LIVE, name=name, sm_count=42, memory_bytes=1 << 35))
    assert facts.peak(Arithmetic.FP16_ACC32) == pytest.approx(312e6 * 42 / 108)
    record = json.loads(facts.properties_json or "")
    assert (record["multiProcessorCount"], record["totalGlobalMem"], record["deviceName"]) == (42, 1 << 35, name)


def test_a_faster_card_of_the_same_name_has_higher_rates() -> None:
    known = profile("rtx4090")
    facts = with_rates_of(known, replace(LIVE, name=known.name, sm_count=128, clock_mhz=3105))
    assert facts.clock_mhz == 3105
    assert facts.peak(Arithmetic.FP32) == pytest.approx(82.6e6 * 3105 / 2520)


def test_a_clock_that_nobody_tells_is_the_profiles() -> None:
    facts = with_rates_of(A100, replace(LIVE, clock_mhz=None))
    assert facts.clock_mhz == 1410
    assert facts.peak_flops_per_us == A100.peak_flops_per_us


@dataclass
class Properties:
    """What PyTorch says of a GPU."""

    name: str
    multi_processor_count: int = 108
    major: int = 8
    minor: int = 0
    total_memory: int = 85_100_068_864
    L2_cache_size: int = 40 << 20
    clock_rate: int = 1_410_000


@dataclass
class Nvml:
    highest_sm_clock_mhz: int | None


def live(monkeypatch: pytest.MonkeyPatch, properties: Any, nvml_mhz: int | None = None) -> DeviceFacts:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda index: properties)
    monkeypatch.setattr(machine, "gpu_of", lambda device: Nvml(nvml_mhz))
    machine._cuda.cache_clear()
    try:
        return device_facts("cuda:0")
    finally:
        machine._cuda.cache_clear()


def test_a_known_gpu_is_recognised_by_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    facts = live(monkeypatch, Properties("NVIDIA A100-SXM4-80GB"))
    assert (facts.architecture, facts.sm_count, facts.clock_mhz) == ("sm_80", 108, 1410)
    assert facts.peak_flops_per_us == A100.peak_flops_per_us


def test_the_drivers_library_knows_the_highest_clock_better(monkeypatch: pytest.MonkeyPatch) -> None:
    properties = Properties("NVIDIA GeForce RTX 4090", 128, 8, 9, clock_rate=2_520_000)
    assert live(monkeypatch, properties).clock_mhz == 2520
    assert live(monkeypatch, properties, nvml_mhz=3105).clock_mhz == 3105


def test_of_an_unknown_gpu_no_rate_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    facts = live(monkeypatch, Properties("NVIDIA Something New", 200, 13, 1))
    assert (facts.architecture, facts.sm_count) == ("sm_131", 200)
    assert (facts.peak_flops_per_us, facts.bandwidth_bytes_per_us, facts.properties_json) == ((), None, None)


def test_a_pytorch_that_tells_no_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    told = vars(Properties("NVIDIA Something New"))
    told.pop("clock_rate")
    assert live(monkeypatch, SimpleNamespace(**told)).clock_mhz is None


def test_the_cpu_here() -> None:
    facts = device_facts("cpu")
    assert (facts.kind, facts.torch_name, facts.threads) == ("cpu", "cpu", torch.get_num_threads())
    assert facts.name
    assert facts.bandwidth_bytes_per_us is None
    assert (facts.clock_mhz is None) <= (facts.peak_flops_per_us == ())


def test_a_device_that_is_neither_here_nor_known() -> None:
    with pytest.raises(BadInput, match=r"device must be cpu, cuda, cuda:1, … or one of a100, .*, v100, got 'z80'"):
        device_facts("z80")


@pytest.mark.parametrize("name", ["cuda:2", "cuda:x", "cuda:-1", "cuda:"])
def test_a_gpu_that_is_not_there_is_said_in_words(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    with pytest.raises(
        BadInput, match=f"device '{name}' was asked for, and the CUDA devices here are cuda:0 to cuda:1"
    ):
        device_facts(name)


def test_a_device_elsewhere_may_be_called_as_its_driver_does() -> None:
    assert device_facts("NVIDIA H200") == device_facts("H200") == device_facts("h200")
    with pytest.raises(BadInput, match="got 'NVIDIA X1'"):
        device_facts("NVIDIA X1")
