"""Devices as data."""

from __future__ import annotations

import json

import pytest

from convwright.core.device import DeviceFacts
from convwright.core.dtype import Arithmetic
from convwright.core.profiles import names, profile, profile_for
from convwright.errors import BadInput


def test_the_h200() -> None:
    h200 = profile("h200")
    assert (h200.name, h200.kind, h200.architecture) == ("NVIDIA H200", "cuda", "sm_90")
    assert (h200.sm_count, h200.clock_mhz, h200.cache_bytes) == (132, 1980, 60 << 20)
    assert h200.bandwidth_bytes_per_us == 4.8e6
    assert h200.peak(Arithmetic.FP32) == pytest.approx(66.9e6)
    assert h200.peak(Arithmetic.TF32X3) == h200.peak(Arithmetic.TF32) == pytest.approx(494.7e6)
    assert not h200.present
    assert h200.key == "NVIDIA H200"


@pytest.mark.parametrize("name", names())
def test_every_profile_is_complete(name: str) -> None:
    facts = profile(name)
    assert facts.torch_name is None
    assert facts.source != "machine"
    assert facts.memory_bytes is not None
    assert facts.memory_bytes > 1 << 30
    for arithmetic in Arithmetic:
        assert (facts.peak(arithmetic) or 0) > 1e6, f"{arithmetic} has no peak on {name}"
    assert json.loads(facts.properties_json or "")["deviceName"] == facts.name
    assert profile_for(facts.name) is facts
    hash(facts)


def test_unknown_devices() -> None:
    with pytest.raises(BadInput, match=r"device must be one of .*h200.*, or present, got 'h2000'"):
        profile("h2000")
    assert profile_for("some other GPU") is None


def test_a_cpu_is_known_by_its_threads_too() -> None:
    cpu = DeviceFacts("this CPU", "cpu", "x86_64", torch_name="cpu", threads=4)
    assert cpu.present
    assert cpu.key == "this CPU, 4 threads"
    assert cpu.peak(Arithmetic.FP32) is None
