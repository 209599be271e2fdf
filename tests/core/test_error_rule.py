"""How much error a candidate may have beside PyTorch's."""

from __future__ import annotations

from math import inf, nan

import pytest

from convwright.core.dtype import Arithmetic, DType
from convwright.core.epilogue import Activation
from convwright.core.error_bound import arithmetic_roundoff, scaled_bound
from convwright.core.error_rule import absolute_objection, error_objection, noise
from convwright.core.finding import KindError
from convwright.core.policy import Policy
from convwright.core.problem import ConvProblem

TORCH = (KindError("normal", 1e-7, 2.0), KindError("positive", 1e-8, 0.2))


PROBLEM = ConvProblem.of((2, 4, 8, 8), (4, 4, 3, 3))


def objection(normal: KindError, policy: Policy = Policy()) -> str | None:
    return error_objection(PROBLEM, [normal, TORCH[1]], TORCH, policy)


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (KindError("normal", 2.1e-7, 2.0), "relative L2 error on normal data is 2.1e-07, PyTorch's is 1e-07 (2x"),
        (KindError("normal", 1e-7, 4.5), "largest scaled error on normal data is 4.5, PyTorch's is 2 (2x allowed)"),
        (KindError("normal", nan, 2.0), "gives wrong infinities or NaNs on normal data"),
        (KindError("normal", 1e-7, inf), "is not 0 on normal data where nothing is summed"),
        (KindError("one NaN", 1e-7, 1.0), "was never compared with PyTorch on one NaN data"),
    ],
)
def test_objections(error: KindError, words: str) -> None:
    assert words in (objection(error) or "")


@pytest.mark.parametrize("error", [*TORCH, KindError("normal", 2e-7, 4.0), KindError("normal", 0.0, 0.0)])
def test_at_most_twice_pytorchs_error_is_allowed(error: KindError) -> None:
    assert objection(error) is None


def test_a_policy_loosens_and_tightens() -> None:
    error = KindError("normal", 3e-7, 6.0)
    assert objection(error, Policy(max_error=3.0)) is None
    assert objection(KindError("normal", 1.5e-7, 2.0), Policy(max_error=1.0)) is not None


@pytest.mark.parametrize("dtype", DType)
def test_less_than_the_noise_needs_no_comparison(dtype: DType) -> None:
    problem = ConvProblem.of((2, 4, 8, 8), (4, 4, 3, 3), dtype=dtype)
    relative, scaled = noise(problem)
    assert relative >= problem.output.dtype.roundoff
    assert scaled >= 1.0
    base = [KindError("normal", relative / 100, scaled / 100)]

    def found(l2: float, largest: float) -> str:
        return error_objection(problem, [KindError("normal", l2, largest)], base, Policy()) or "none"

    assert found(relative, scaled) == "none"
    assert "relative L2" in found(1.01 * relative, scaled)
    assert "scaled" in found(relative, 1.01 * scaled)


def test_infinities_play_no_part_where_inputs_are_finite() -> None:
    base = [KindError("infinity", 1e-8, 0.1), KindError("nan", 1e-8, 0.1), KindError("normal", 1e-7, 1.0)]
    spread = [KindError("infinity", nan, nan), KindError("nan", inf, inf), base[2]]
    assert "on infinity data" in (error_objection(PROBLEM, spread, base, Policy()) or "")
    assert error_objection(PROBLEM, spread, base, Policy(finite_inputs=True)) is None
    wrong = [*spread[:2], KindError("normal", nan, nan)]
    assert "on normal data" in (error_objection(PROBLEM, wrong, base, Policy(finite_inputs=True)) or "")


def test_coarser_arithmetic_has_a_larger_bound() -> None:
    def bound(arithmetic: Arithmetic) -> float:
        return scaled_bound(arithmetic, DType.FP32, 100)

    assert bound(Arithmetic.FP32) < bound(Arithmetic.TF32X3) < bound(Arithmetic.TF32)
    assert bound(Arithmetic.FP16X3) == bound(Arithmetic.TF32X3)
    assert bound(Arithmetic.SCALED_FP16) == bound(Arithmetic.TF32)
    assert bound(Arithmetic.FP32) == 3 + 103
    assert scaled_bound(Arithmetic.FP64, DType.FP64, 100) == 3 + 103
    assert bound(Arithmetic.FP32) < scaled_bound(Arithmetic.FP32, DType.FP32, 1000)


def test_sums_of_fp8_are_kept_in_fewer_bits_and_short_ones_still_tell_a_product_that_is_missing() -> None:
    fp8, exact = (scaled_bound(each, DType.FP32, 288) * 2.0**-24 for each in (Arithmetic.FP8_ACC32, Arithmetic.FP32))
    assert exact < 2.0**-14.6 < fp8 < 1 / 288


def test_a_sum_of_int8_that_is_off_by_one_is_wrong_however_it_is_stored() -> None:
    def told(text: str, off_by: float, result: float) -> str | None:
        problem = ConvProblem.parse(f"mb2ic64ih9oc8kh3 dt:int8:int8:{text}")
        scale = 1.0 if problem.output.dtype is DType.INT8 else result
        error = KindError("normal", off_by / result, off_by / scale / problem.output.dtype.roundoff)
        return absolute_objection(problem, Arithmetic.INT8, [error], Policy())

    for text in ("fp32", "fp32 ep:bias+relu", "int8", "int8 ep:residual+bias+relu", "fp16", "bf16"):
        assert told(text, 0.0, 100.0) is None
        assert "is explained" in (told(text, 1.0, 100.0) or ""), text
    assert told("fp32", 1.0, 2.0**23) is not None
    assert told("fp16", 1.0, 2.0**11) is None  # what fp16 rounds
    assert told("fp32", 1.0, 2.0**24) is None


def test_fp8_is_bounded_in_units_of_what_its_output_is_stored_in() -> None:
    coarse = ConvProblem.parse("mb2ic64ih9oc8kh3 dt:fp8_e4m3:fp8_e4m3:fp16")
    fine = ConvProblem.parse("mb2ic64ih9oc8kh3 dt:fp8_e4m3")
    error = [KindError("normal", 1e-4, 100.0)]
    assert absolute_objection(fine, Arithmetic.FP8_ACC32, error, Policy()) is None  # 576 sums, 32 at a time
    assert "at most 7.8 is" in (absolute_objection(coarse, Arithmetic.FP8_ACC32, error, Policy()) or "")


def test_storage_bounds_the_roundoff_from_below() -> None:
    assert arithmetic_roundoff(Arithmetic.FP32, DType.FP16) == 2.0**-11
    assert arithmetic_roundoff(Arithmetic.TF32, DType.FP32) == 2.0**-11
    assert arithmetic_roundoff(Arithmetic.SCALED_FP16, DType.FP32) == 2.0**-11
    assert arithmetic_roundoff(Arithmetic.FP64, DType.FP32) == 2.0**-24


@pytest.mark.parametrize("dtype", DType)
def test_an_activation_passes_errors_on_by_its_slope(dtype: DType) -> None:
    plain = scaled_bound(Arithmetic.FP32, dtype, 100)
    assert scaled_bound(Arithmetic.FP32, dtype, 100, Activation.RELU) == plain
    for activation in (Activation.SILU, Activation.GELU, Activation.HARDSWISH):
        bound = scaled_bound(Arithmetic.FP32, dtype, 100, activation)
        assert activation.slope * plain < bound <= activation.slope * plain + 5
