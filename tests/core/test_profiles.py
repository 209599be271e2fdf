"""Devices as data: complete, and each figure agrees with the others that it follows from."""

from __future__ import annotations

import json
import re
from dataclasses import replace

import pytest

from convwright.core.device import DeviceFacts
from convwright.core.dtype import Arithmetic
from convwright.core.profiles import names, profile, profile_for, record
from convwright.errors import BadInput

NAMES = ("a100", "b200", "h100", "h200", "l4", "rtx4090", "rtx5090", "t4", "v100")

# Floating-point operations that one multiprocessor ends in a cycle: two for each multiply-add of its units.
# GeForce's tensor cores add in fp32 at half of their rate.
FLOPS_PER_CYCLE = {
    "v100": {"fp64": 64, "fp32": 128, "fp16-acc32": 1024, "fp16-acc16": 1024, "int8": 512},
    "t4": {"fp64": 4, "fp32": 128, "fp16-acc32": 1024, "fp16-acc16": 1024, "int8": 2048},
    "a100": {"fp64": 128, "fp32": 128, "tf32": 1024, "fp16-acc32": 2048, "fp16-acc16": 2048, "bf16-acc32": 2048,
             "int8": 4096},
    "l4": {"fp64": 4, "fp32": 256, "tf32": 512, "fp16-acc32": 1024, "fp16-acc16": 1024, "bf16-acc32": 1024,
           "int8": 2048, "fp8-acc32": 2048},
    "rtx4090": {"fp64": 4, "fp32": 256, "tf32": 256, "fp16-acc32": 512, "fp16-acc16": 1024, "bf16-acc32": 512,
                "int8": 2048, "fp8-acc32": 1024},
    "h100": {"fp64": 256, "fp32": 256, "tf32": 2048, "fp16-acc32": 4096, "fp16-acc16": 4096, "bf16-acc32": 4096,
             "int8": 8192, "fp8-acc32": 8192},
    "b200": {"fp64": 128, "fp32": 256, "tf32": 4096, "fp16-acc32": 8192, "fp16-acc16": 8192, "bf16-acc32": 8192,
             "int8": 16384, "fp8-acc32": 16384},
}  # fmt: skip
FLOPS_PER_CYCLE |= {"h200": FLOPS_PER_CYCLE["h100"], "rtx5090": FLOPS_PER_CYCLE["rtx4090"]}

BUS_BITS = {
    "v100": 4096, "t4": 256, "a100": 5120, "l4": 192, "rtx4090": 384, "rtx5090": 512, "h100": 5120, "h200": 6144,
    "b200": 7680,
}  # fmt: skip

# What the CUDA programming guide says of each compute capability.
OF_CAPABILITY = {
    700: {"maxSharedMemoryPerBlockOptin": 96, "reservedSharedMemoryPerBlock": 0, "maxCtasPerSM": 32, "threads": 2048},
    750: {"maxSharedMemoryPerBlockOptin": 64, "reservedSharedMemoryPerBlock": 0, "maxCtasPerSM": 16, "threads": 1024},
    800: {"maxSharedMemoryPerBlockOptin": 163, "reservedSharedMemoryPerBlock": 1, "maxCtasPerSM": 32, "threads": 2048},
    890: {"maxSharedMemoryPerBlockOptin": 99, "reservedSharedMemoryPerBlock": 1, "maxCtasPerSM": 24, "threads": 1536},
    900: {"maxSharedMemoryPerBlockOptin": 227, "reservedSharedMemoryPerBlock": 1, "maxCtasPerSM": 32, "threads": 2048},
    1000: {"maxSharedMemoryPerBlockOptin": 227, "reservedSharedMemoryPerBlock": 1, "maxCtasPerSM": 32, "threads": 2048},
    1200: {"maxSharedMemoryPerBlockOptin": 99, "reservedSharedMemoryPerBlock": 1, "maxCtasPerSM": 24, "threads": 1536},
}


def test_the_devices_by_name() -> None:
    assert names() == NAMES


def test_the_h200() -> None:
    h200 = profile("h200")
    assert (h200.name, h200.kind, h200.architecture) == ("NVIDIA H200", "cuda", "sm_90")
    assert (h200.sm_count, h200.clock_mhz, h200.cache_bytes) == (132, 1980, 60 << 20)
    assert h200.bandwidth_bytes_per_us == 4.8e6
    assert h200.peak(Arithmetic.FP32) == pytest.approx(66.9e6)
    assert h200.peak(Arithmetic.TF32X3) == h200.peak(Arithmetic.TF32)
    assert h200.peak(Arithmetic.FP16X3) == h200.peak(Arithmetic.FP16_ACC32)
    assert h200.peak(Arithmetic.SCALED_FP16) == h200.peak(Arithmetic.FP16_ACC32)
    assert not h200.present
    assert h200.key == "NVIDIA H200"


def test_peaks_are_those_of_the_highest_clock() -> None:
    """The datasheet's 989.4 is at 1830 MHz, and a short kernel runs at 1980: no time may come out below its limit."""
    peak = profile("h200").peak(Arithmetic.FP16_ACC32)
    assert peak == pytest.approx(989.4e6 * 1980 / 1830)
    assert peak == pytest.approx(132 * 4096 * 1980, rel=1e-3)


@pytest.mark.parametrize("name", NAMES)
def test_every_profile_is_complete(name: str) -> None:
    facts, properties = profile(name), record(name)["properties"]
    assert facts.torch_name is None
    assert "datasheet" in facts.source or "whitepaper" in facts.source
    assert facts.memory_bytes is not None
    assert facts.memory_bytes > 1 << 30
    assert json.loads(facts.properties_json or "") == properties
    assert properties.keys() == record("h200")["properties"].keys()
    assert facts.architecture == f"sm_{properties['deviceVer'] // 10}"
    assert properties["deviceName"] == facts.name
    assert profile_for(facts.name) is facts
    hash(facts)


@pytest.mark.parametrize("name", NAMES)
def test_arithmetic_that_a_device_has_not_has_no_peak(name: str) -> None:
    facts = profile(name)
    without = {Arithmetic.TF32, Arithmetic.TF32X3, Arithmetic.BF16_ACC32} if name in ("t4", "v100") else set()
    without |= {Arithmetic.FP8_ACC32} if name in ("t4", "v100", "a100") else set()
    for arithmetic in Arithmetic:
        assert (facts.peak(arithmetic) is None) == (arithmetic in without), f"{arithmetic} on {name}"


@pytest.mark.parametrize("name", NAMES)
def test_each_rate_is_multiprocessors_times_clock_times_operations_per_cycle(name: str) -> None:
    written = record(name)
    rates, clocks = written["peak_tflops"], written["peak_clock_mhz"]
    assert rates.keys() == clocks.keys() == FLOPS_PER_CYCLE[name].keys()
    for rate, per_cycle in FLOPS_PER_CYCLE[name].items():
        assert Arithmetic(rate)
        assert clocks[rate] * 1000 <= written["properties"]["smClockRateKHz"]
        flops = written["properties"]["multiProcessorCount"] * clocks[rate] * 1e6 * per_cycle
        assert rates[rate] * 1e12 == pytest.approx(flops, rel=0.03), rate


@pytest.mark.parametrize("name", NAMES)
def test_bandwidth_is_twice_the_memory_clock_times_the_bus(name: str) -> None:
    written = record(name)
    bytes_per_s = 2 * written["properties"]["memClockRateKHz"] * 1e3 * BUS_BITS[name] / 8
    assert written["bandwidth_gb_per_s"] * 1e9 == pytest.approx(bytes_per_s, rel=0.03)


@pytest.mark.parametrize("name", NAMES)
def test_limits_of_a_multiprocessor_are_those_of_its_compute_capability(name: str) -> None:
    properties = record(name)["properties"]
    expected = OF_CAPABILITY[properties["deviceVer"]]
    assert properties["maxSharedMemoryPerBlockOptin"] == expected["maxSharedMemoryPerBlockOptin"] << 10
    assert properties["reservedSharedMemoryPerBlock"] == expected["reservedSharedMemoryPerBlock"] << 10
    assert properties["maxCtasPerSM"] == expected["maxCtasPerSM"]
    assert properties["maxThreadsPerSM"] == expected["threads"]
    for key, value in (("maxSharedMemoryPerBlock", 48 << 10), ("regsPerBlock", 65536), ("maxRegistersPerSM", 65536)):
        assert properties[key] == value


@pytest.mark.parametrize(
    ("driver_name", "name"),
    [
        ("Tesla V100-SXM2-16GB", "v100"),
        ("Tesla V100-SXM2-32GB", "v100"),
        ("NVIDIA A100-SXM4-80GB", "a100"),
        ("NVIDIA A100-SXM4-80GB MIG 1g.10gb", "a100"),
        ("NVIDIA GeForce RTX 4090", "rtx4090"),
    ],
)
def test_a_device_is_found_by_the_drivers_name(driver_name: str, name: str) -> None:
    assert profile_for(driver_name) is profile(name)


@pytest.mark.parametrize("driver_name", ["some other GPU", "NVIDIA A100-PCIE-40GB", "NVIDIA GeForce RTX 4090 D", ""])
def test_a_device_of_another_name_has_no_profile(driver_name: str) -> None:
    assert profile_for(driver_name) is None


def test_unknown_devices() -> None:
    wanted = f"device must be cpu, cuda, cuda:1, … or one of {', '.join(NAMES)}, got 'h2000'"
    with pytest.raises(BadInput, match=re.escape(wanted)):
        profile("h2000")


def test_peaks_follow_multiprocessors_and_clock() -> None:
    a100 = profile("a100")
    half = dict(a100.peaks_with(54, 1410))
    assert half[Arithmetic.FP32] == pytest.approx(19.5e6 / 2)
    assert dict(a100.peaks_with(108, 705)) == pytest.approx(half)
    unknown = replace(a100, clock_mhz=None)
    assert unknown.peaks_with(54, 1410) == a100.peak_flops_per_us


def test_a_cpu_is_known_by_its_threads_too() -> None:
    cpu = DeviceFacts("this CPU", "cpu", "x86_64", torch_name="cpu", threads=4)
    assert cpu.present
    assert cpu.key == "this CPU, 4 threads"
    assert cpu.peak(Arithmetic.FP32) is None
