"""Data of int8 and fp8, what is right about them, and what is found to be wrong."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from convwright.core.direction import Role
from convwright.core.dtype import Arithmetic, DType
from convwright.core.error_rule import absolute_objection
from convwright.core.policy import Policy
from convwright.core.problem import ConvProblem
from convwright.measuring.checking.data import NON_FINITE_KINDS, Kind, kinds_of, operands
from convwright.measuring.checking.error import ErrorCheck
from convwright.measuring.checking.of_kind import sampled_reference
from convwright.measuring.checking.reference import Reference
from convwright.tensors import torch_dtype

SIZES = "mb2ic16ih17oc24kh3ph1"
EPILOGUES = ("none", "bias", "residual+bias+relu", "bias+silu")
NARROW = [dtype for dtype in DType if dtype.narrow]
STORED = [f"{dtype}:{dtype}:{stored}" for dtype in NARROW for stored in dtype.outputs]


@pytest.mark.parametrize("stored", STORED)
@pytest.mark.parametrize("epilogue", EPILOGUES)
@pytest.mark.parametrize("kind", Kind)
def test_every_operand_has_its_dtype(stored: str, epilogue: str, kind: Kind) -> None:
    problem = ConvProblem.parse(f"{SIZES} dt:{stored} tag:nhwc ep:{epilogue}")
    if kind not in kinds_of(problem, Kind):
        return
    for role, tensor in operands(problem, kind, "cpu").items():
        spec = problem.operands[role]
        assert (tuple(tensor.shape), tensor.stride(), tensor.dtype) == (
            spec.shape,
            spec.strides,
            torch_dtype(spec.dtype),
        )
    if problem.epilogue.bias:
        assert problem.operands[Role.BIAS].dtype is DType.FP32


def test_what_a_dtype_cannot_hold_is_not_looked_at() -> None:
    held = {dtype: kinds_of(ConvProblem.parse(f"{SIZES} dt:{dtype}"), Kind) for dtype in DType}
    assert held[DType.FP32] == held[DType.FP8_E5M2] == tuple(Kind)
    assert set(Kind) - set(held[DType.FP8_E4M3]) == {Kind.INFINITY}
    assert set(held[DType.INT8]) == {Kind.NORMAL, Kind.POSITIVE, Kind.LARGE, Kind.INTEGERS}


@pytest.mark.parametrize("dtype", [DType.FP8_E4M3, DType.FP8_E5M2])
@pytest.mark.parametrize("kind", [Kind.NORMAL, Kind.POSITIVE, Kind.CHANNEL_SCALED, Kind.LARGE])
def test_finite_kinds_of_fp8_are_finite_and_not_all_zero(dtype: DType, kind: Kind) -> None:
    problem = ConvProblem.parse(f"{SIZES} dt:{dtype}:{dtype}:fp16 ep:residual+bias")
    made = operands(problem, kind, "cpu")
    for tensor in made.values():
        assert tensor.float().isfinite().all()
        assert tensor.float().count_nonzero() > 0.4 * tensor.numel()
    assert Reference.of(problem, made).y64.half().isfinite().all()


def test_large_fp8_comes_near_the_ends_of_the_range() -> None:
    for dtype in (DType.FP8_E4M3, DType.FP8_E5M2):
        made = operands(ConvProblem.parse(f"{SIZES} dt:{dtype}"), "large", "cpu")
        assert made[Role.X].float().abs().max() > torch.finfo(torch_dtype(dtype)).max / 8
        assert made[Role.W].float().abs().median() < 4 * torch.finfo(torch_dtype(dtype)).tiny


def test_results_of_int8_are_mostly_what_int8_holds() -> None:
    problem = ConvProblem.parse(f"{SIZES} dt:int8:int8:int8 ep:bias")
    y64 = Reference.of(problem, operands(problem, "normal", "cpu")).y64
    assert (y64 == y64.round()).all()
    assert y64.min() >= -128
    assert y64.max() <= 127
    assert 0.001 < (y64.abs() >= 127).double().mean() < 0.4
    large = Reference.of(problem, operands(problem, "large", "cpu")).y64
    assert (large.abs() >= 127).double().mean() > 0.9


def exactly(problem: ConvProblem, given: dict[Role, Tensor]) -> Tensor:
    """The sums in int64, the residual and the bias on top; the output rounded and saturated once."""
    x, w = (given[role].long() for role in (Role.X, Role.W))
    y = torch.conv2d(x, w, None, problem.stride, 1).double()
    y = y + given.get(Role.RESIDUAL, torch.zeros(())).double()
    if Role.BIAS in given:
        y = y + given[Role.BIAS].double().view(-1, 1, 1)
    if problem.epilogue.activation != "none":
        y = y.relu()
    stored = torch_dtype(problem.output.dtype)
    return y.clamp(-128, 127).to(stored) if stored is torch.int8 else y.to(stored)


@pytest.mark.parametrize("stored", ["fp32", "fp16", "bf16", "int8"])
@pytest.mark.parametrize("epilogue", ["none", "bias", "residual+bias+relu"])
@pytest.mark.parametrize("sampled", [False, True])
def test_exact_sums_pass_and_one_that_is_off_by_one_does_not(stored: str, epilogue: str, *, sampled: bool) -> None:
    problem = ConvProblem.parse(f"{SIZES} dt:int8:int8:{stored} ep:{epilogue}")
    check = ErrorCheck(problem, "cpu", **({"reference": sampled_reference} if sampled else {}))

    def objection(run: object) -> str | None:
        return absolute_objection(problem, Arithmetic.INT8, check.errors(run), Policy())  # type: ignore[arg-type]

    assert objection(lambda given: exactly(problem, given)) is None

    def off_by_one(given: dict[Role, Tensor]) -> Tensor:
        right = exactly(problem, given)
        return (right - 1).to(right.dtype) if right.dtype is not torch.int8 else right.clamp(-127) - 1

    assert "is explained" in (objection(off_by_one) or "")


@pytest.mark.parametrize("stored", [text for text in STORED if text.startswith("fp8")])
def test_fp32_sums_of_fp8_stay_within_the_bound_and_those_of_fp8_outputs_do_not(stored: str) -> None:
    problem = ConvProblem.parse(f"{SIZES} dt:{stored} ep:bias+relu")
    check, dtype = ErrorCheck(problem, "cpu"), torch_dtype(problem.output.dtype)

    def in_fp32(given: dict[Role, Tensor]) -> Tensor:
        y = torch.conv2d(given[Role.X].float(), given[Role.W].float(), given[Role.BIAS], 1, 1)
        return y.relu().to(dtype)

    def in_fp8(given: dict[Role, Tensor]) -> Tensor:
        return in_fp32(given).to(given[Role.X].dtype).to(dtype)

    assert absolute_objection(problem, Arithmetic.FP8_ACC32, check.errors(in_fp32), Policy()) is None
    assert absolute_objection(problem, Arithmetic.FP8_ACC32, check.errors(in_fp8), Policy()) is not None


def test_an_infinity_and_a_nan_are_seen_in_fp8() -> None:
    problem = ConvProblem.parse(f"{SIZES} dt:fp8_e5m2:fp8_e5m2:fp16")
    for kind in NON_FINITE_KINDS:
        made = operands(problem, kind, "cpu")
        assert not made[Role.X].float().isfinite().all()
        assert not Reference.of(problem, made).y64.isfinite().all()
        assert not sampled_reference(problem, made).y64.isfinite().all()
