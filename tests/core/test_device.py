"""What is true of a device."""

from __future__ import annotations

from dataclasses import replace
from math import inf, nan
from typing import Any

import pytest

from convwright.core.device import DeviceFacts
from convwright.core.dtype import Arithmetic
from convwright.core.profiles import profile
from convwright.errors import BadInput

H200 = profile("h200")


def test_a_device_without_rates_has_what_its_capability_says() -> None:
    old, new = (replace(H200, peak_flops_per_us=(), architecture=name) for name in ("sm_75", "sm_80"))
    assert not old.computes(Arithmetic.TF32)
    assert not old.computes(Arithmetic.BF16_ACC32)
    assert old.computes(Arithmetic.FP16_ACC32)
    assert new.computes(Arithmetic.TF32)
    assert H200.computes(Arithmetic.TF32)
    assert not profile("t4").computes(Arithmetic.TF32)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"name": ""}, "`name` must be a text, got ''"),
        ({"name": None}, "`name` must be a text, got None"),
        ({"architecture": 90}, "`architecture` must be a text, got 90"),
        ({"kind": "tpu"}, "`kind` must be one of cpu, cuda, got 'tpu'"),
        ({"torch_name": 0}, "`torch_name` must be PyTorch's name of it, or None, got 0"),
        ({"threads": 0}, "`threads` must be a whole number above 0, or None, got 0"),
        ({"threads": True}, "`threads` must be a whole number above 0, or None, got True"),
        ({"sm_count": -1}, "`sm_count` must be a whole number above 0, or None, got -1"),
        ({"clock_mhz": 1980.5}, "`clock_mhz` must be a whole number above 0, or None, got 1980.5"),
        ({"memory_bytes": nan}, "`memory_bytes` must be a whole number above 0, or None, got nan"),
        ({"cache_bytes": "50 MB"}, "`cache_bytes` must be a whole number above 0, or None, got '50 MB'"),
        ({"bandwidth_bytes_per_us": -8.0}, "`bandwidth_bytes_per_us` takes a finite number above 0, got -8"),
        ({"bandwidth_bytes_per_us": nan}, "`bandwidth_bytes_per_us` takes a finite number above 0, got nan"),
        ({"bandwidth_bytes_per_us": "fast"}, "`bandwidth_bytes_per_us` takes a finite number above 0, got 'fast'"),
        ({"peak_flops_per_us": 3.0}, "`peak_flops_per_us` must be pairs of an arithmetic and its rate, got 3.0"),
        ({"peak_flops_per_us": ("fp32", 3.0)}, "must be pairs of an arithmetic and its rate, got ('fp32', 3.0)"),
        ({"peak_flops_per_us": (("fp32", inf),)}, "`peak_flops_per_us` takes a finite number above 0, got inf"),
        ({"peak_flops_per_us": (("fp31", 3.0),)}, "`peak_flops_per_us` must be one of fp64, fp32, "),
        ({"properties_json": "{"}, "`properties_json` must be a JSON object as text, or None, got '{'"),
        ({"properties_json": {"a": 1}}, "`properties_json` must be a JSON object as text, or None, got {'a': 1}"),
    ],
)
def test_what_no_device_is_is_one_sentence(given: dict[str, Any], said: str) -> None:
    with pytest.raises(BadInput) as error:
        replace(H200, **given)
    assert said in str(error.value)
    assert "a device's `" in str(error.value)


def test_an_arithmetic_may_be_named() -> None:
    rates: Any = [["fp32", 67e6]]
    facts = DeviceFacts("a GPU", "cuda", "sm_90", peak_flops_per_us=rates)
    assert facts.peak_flops_per_us == ((Arithmetic.FP32, 67e6),)
    assert hash(facts) == hash(replace(facts))
