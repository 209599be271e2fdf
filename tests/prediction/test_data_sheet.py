"""Predictions of a device of which no model was learned."""

from __future__ import annotations

from convwright.backends.torch_native.own import torch_candidate
from convwright.core.candidate import Candidate, Source
from convwright.core.device import DeviceFacts
from convwright.core.dtype import Arithmetic
from convwright.core.problem import ConvProblem
from convwright.core.profiles import profile
from convwright.prediction.data_sheet import DATA_SHEET, ESTIMATED, operator_us
from convwright.prediction.physics import least_us

H200 = profile("h200")
A_CPU = DeviceFacts("a CPU", "cpu", "x86_64", threads=1)


def own(layout: str, device: str = "mb32ic256ih28oc256kh3ph1 dt:fp16") -> Candidate:
    return torch_candidate(ConvProblem.parse(f"{device} tag:{layout}"))


def test_bounds_are_wide_and_hold_the_limit() -> None:
    found = DATA_SHEET.predict(own("nhwc"), H200)
    least = least_us(own("nhwc"), H200)
    assert found is not None
    assert least is not None
    assert not found.in_domain
    assert found.time_us.low < least < found.time_us.value < found.time_us.high


def test_16_bits_in_planes_are_copied_first() -> None:
    last, planes = (DATA_SHEET.predict(own(layout), H200) for layout in ("nhwc", "nchw"))
    assert last is not None
    assert planes is not None
    assert planes.time_us.value > 1.3 * last.time_us.value


def test_nothing_is_said_of_an_operator_on_a_device_without_rates() -> None:
    assert operator_us(1_000, 0, Arithmetic.FP32, A_CPU) is None


def test_operators_are_bound_by_bytes_or_by_products() -> None:
    few, many, multiplied = (
        operator_us(nbytes, flops, Arithmetic.FP16_ACC32, H200)
        for nbytes, flops in ((10**6, 0), (10**9, 0), (10**6, 10**13))
    )
    assert few is not None
    assert many is not None
    assert multiplied is not None
    assert few.value < many.low
    assert few.value < multiplied.low


def test_an_estimate_counts_before_physics() -> None:
    estimated = Candidate(
        own("nhwc").problem, "triton", "boxed-gemm", (), Arithmetic.FP16_ACC32, 0, True, Source.RULE, estimated_us=77.0
    )
    found = DATA_SHEET.predict(estimated, H200)
    assert found is not None
    assert 77.0 * ESTIMATED.median <= found.time_us.value < 80.0 * ESTIMATED.median
    assert found.time_us.high < 4 * found.time_us.low
