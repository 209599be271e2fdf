"""No candidate can be faster than its limits: the bytes of its problem, and what its leaf really multiplies."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from convwright.core.candidate import Candidate, Config, Source
from convwright.core.device import DeviceFacts
from convwright.core.dtype import Arithmetic
from convwright.core.epilogue import Epilogue
from convwright.core.limits import Limits, beyond_32_bits, flops, limits, too_large
from convwright.core.problem import ConvProblem
from convwright.core.profiles import names, profile

PROBLEM = ConvProblem.of((8, 3, 16, 16), (32, 3, 3, 3), padding=1)
PEAKS = ((Arithmetic.FP32, 2.0), (Arithmetic.TF32, 4.0), (Arithmetic.FP16_ACC32, 8.0))
GPU = DeviceFacts("a GPU", "cuda", "sm_90", bandwidth_bytes_per_us=8.0, peak_flops_per_us=PEAKS)


def leaf(problem: ConvProblem, arithmetic: Arithmetic = Arithmetic.FP32, **properties: Any) -> Candidate:
    return Candidate(problem, "a", "b", (), arithmetic, 0, True, Source.RULE, **properties)


def around(inner: Candidate, problem: ConvProblem, name: str, config: Config = ()) -> Candidate:
    return Candidate(problem, "rewrite", name, config, inner.arithmetic, 0, True, Source.RULE, inner=inner)


def test_a_leaf_multiplies_what_its_problem_says() -> None:
    assert flops(leaf(PROBLEM)) == PROBLEM.flops
    bound = limits(leaf(PROBLEM), GPU)
    assert (bound.bytes_us, bound.arithmetic_us) == (PROBLEM.bytes / 8, PROBLEM.flops / 2)


def test_parts_add_up_to_the_whole() -> None:
    quarter = ConvProblem.of((2, 3, 16, 16), (32, 3, 3, 3), padding=1)
    split = around(leaf(quarter), PROBLEM, "split-batch", (("parts", 4),))
    assert flops(split) == PROBLEM.flops
    assert limits(split, GPU) == limits(leaf(PROBLEM), GPU)


def test_padding_costs_products_but_no_bytes_limit() -> None:
    padded = ConvProblem.of((8, 8, 16, 16), (32, 8, 3, 3), padding=1)
    candidate = around(leaf(padded), PROBLEM, "pad-c", (("multiple", 8),))
    assert flops(candidate) == padded.flops == PROBLEM.flops * 8 // 3
    bound = limits(candidate, GPU)
    assert bound.bytes_us == PROBLEM.bytes / 8
    assert bound.arithmetic_us == padded.flops / 2


def test_rewrites_around_rewrites() -> None:
    padded = ConvProblem.of((4, 8, 16, 16), (32, 8, 3, 3), padding=1)
    half = ConvProblem.of((4, 3, 16, 16), (32, 3, 3, 3), padding=1)
    candidate = around(around(leaf(padded), half, "pad-c", (("multiple", 8),)), PROBLEM, "split-batch", (("parts", 2),))
    assert flops(candidate) == 2 * padded.flops


def test_an_algorithm_that_saves_products_has_no_arithmetic_limit_inside_a_rewrite_either() -> None:
    winograd = leaf(PROBLEM, saves_products=True)
    for candidate in (winograd, around(winograd, PROBLEM, "unfuse")):
        assert limits(candidate, GPU) == Limits(PROBLEM.bytes / 8, None)


@pytest.mark.parametrize(
    ("unit", "split", "peak"),
    [(Arithmetic.TF32, Arithmetic.TF32X3, 4), (Arithmetic.FP16_ACC32, Arithmetic.FP16X3, 8)],
)
def test_three_products_take_three_times_as_long_on_the_unit_that_computes_them(
    unit: Arithmetic, split: Arithmetic, peak: int
) -> None:
    one, three = (limits(leaf(PROBLEM, each), GPU).arithmetic_us for each in (unit, split))
    assert one == PROBLEM.flops / peak
    assert three == pytest.approx(3 * PROBLEM.flops / peak)


def test_a_number_of_fp16_beside_a_shared_power_of_two_is_multiplied_once() -> None:
    assert limits(leaf(PROBLEM, Arithmetic.SCALED_FP16), GPU).arithmetic_us == PROBLEM.flops / 8


def test_what_is_not_known_is_none() -> None:
    bound = limits(leaf(PROBLEM, Arithmetic.FP64), replace(GPU, bandwidth_bytes_per_us=None))
    assert (bound.bytes_us, bound.arithmetic_us, bound.limit_us, bound.share(1.0)) == (None, None, None, None)


def test_the_limit_is_the_larger_of_the_two() -> None:
    assert Limits(2.0, 3.0).limit_us == 3.0
    assert Limits(2.0, None).limit_us == 2.0
    assert Limits(2.0, 3.0).share(12.0) == 0.25


@pytest.mark.parametrize("name", names())
def test_limits_on_every_profile(name: str) -> None:
    """ResNet-50's middle layer in fp16: 6.7 GFLOP take from 2 µs on a B200 to 104 on a T4."""
    problem = ConvProblem.parse("mb32ic256ih14oc256kh3ph1 dt:fp16 tag:nhwc")
    bound = limits(leaf(problem, Arithmetic.FP16_ACC32), profile(name))
    assert bound.arithmetic_us is not None
    assert bound.bytes_us is not None
    assert 2 < bound.arithmetic_us < 105
    assert 0.9 < bound.bytes_us < 30


def test_an_algorithm_that_counts_its_products_has_a_limit_of_its_own() -> None:
    found = replace(leaf(PROBLEM), saves_products=True)
    assert limits(found, GPU).arithmetic_us is None
    counted = replace(found, products=PROBLEM.macs // 4)
    assert flops(counted) == 2 * (PROBLEM.macs // 4)
    assert limits(counted, GPU).arithmetic_us is not None


def test_operands_that_a_device_cannot_hold() -> None:
    large = ConvProblem.parse("mb2000ic256ih512oc256kh3ph1")
    assert too_large(large, profile("t4")) == "its operands take 1,073.7 GB, Tesla T4 has 15.8 GB of memory"
    assert too_large(large, replace(profile("t4"), memory_bytes=None)) is None, "nobody knows"
    assert too_large(PROBLEM, profile("t4")) is None
    added = ConvProblem.parse("mb300ic64oc64ih384kh3ph1 dt:fp16 ep:residual")
    assert too_large(replace(added, epilogue=Epilogue()), profile("t4")) is None
    assert too_large(added, profile("t4")) is not None


@pytest.mark.parametrize(("sizes", "step"), [("sw2147483648", "2,147,483,648"), ("dw2147483647", "2,147,483,648")])
def test_steps_of_more_than_32_bits(sizes: str, step: str) -> None:
    reason = beyond_32_bits(ConvProblem.parse(f"ic8ih9oc8kh1{sizes}"))
    assert reason == f"on a GPU, strides, dilations and padding are numbers of 32 bits, got {step}"
    assert beyond_32_bits(ConvProblem.parse("ic8ih9oc8kh1sw2147483647")) is None
