"""What is true of a device."""

from __future__ import annotations

from dataclasses import replace

from convwright.core.dtype import Arithmetic
from convwright.core.profiles import profile

H200 = profile("h200")


def test_a_device_without_rates_has_what_its_capability_says() -> None:
    old, new = (replace(H200, peak_flops_per_us=(), architecture=name) for name in ("sm_75", "sm_80"))
    assert not old.computes(Arithmetic.TF32)
    assert not old.computes(Arithmetic.BF16_ACC32)
    assert old.computes(Arithmetic.FP16_ACC32)
    assert new.computes(Arithmetic.TF32)
    assert H200.computes(Arithmetic.TF32)
    assert not profile("t4").computes(Arithmetic.TF32)
