"""Epilogues that scale, accumulate, or belong to a gradient: their float64 reference, and that faults show in it."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from hypothesis import given, settings
from torch import Tensor

from convwright.backends.torch_native.extended_epilogue import ExtendedEpiloguePlan
from convwright.backends.torch_native.own import own, torch_candidate
from convwright.core.direction import Direction, Role
from convwright.core.dtype import IN_PYTORCH, Arithmetic, DType
from convwright.core.epilogue import Activation
from convwright.core.error_rule import absolute_objection
from convwright.core.finding import KindError
from convwright.core.fusing import rare_operands
from convwright.core.policy import Policy
from convwright.core.problem import ConvProblem
from convwright.measuring.checking.data import ERROR_KINDS, Kind
from convwright.measuring.checking.data import operands as data
from convwright.measuring.checking.error import ErrorCheck, errors_of
from convwright.measuring.checking.of_kind import sampled_reference
from convwright.measuring.checking.reference import Reference
from problem_space import ahead, operands, oracle, problems

FORWARD = "mb2ic6ih11oc8kh3ph1 ep:scale+residual+bias+silu+accumulate"
DATA = "mb2ic6ih11oc8kh3ph1 dir:backward_data ep:scale+relu+accumulate"
WEIGHT = "mb2ic6ih11oc8kh3ph1 dir:backward_weight ep:scale+bias+gelu+accumulate"
SMOOTH = "g2mb2ic6ih11oc8kh3ph1sh2 dir:backward_weight ep:bias+hardswish tag:nhwc"
ALL = [FORWARD, DATA, WEIGHT, SMOOTH]
Given = dict[Role, Tensor]
Run = Callable[[Given], Tensor]


def torchs(problem: ConvProblem) -> Run:
    plan = ExtendedEpiloguePlan(torch_candidate(problem, cpu=True), own)

    def run(given: Given) -> Tensor:
        first, second = (given[role] for role in problem.direction.operands)
        rare = {str(role): given[role] for role in rare_operands(problem)}
        out = given[Role.BEFORE].clone() if Role.BEFORE in given else None
        return plan(first, second, given.get(Role.BIAS), given.get(Role.RESIDUAL), out, **rare)

    return run


@settings(max_examples=50, deadline=None)
@given(problem=problems(activations=[*Activation], least_images=1, rare=True))
def test_the_reference_is_what_autograd_makes_of_it(problem: ConvProblem) -> None:
    given = operands(problem, 3, integers=False)
    expected = oracle(problem, given)
    reference, sampled = Reference.of(problem, given), sampled_reference(problem, given)
    torch.testing.assert_close(reference.y64, expected, rtol=1e-11, atol=1e-11)
    at = sampled.sample.take(problem.direction.output, expected)
    torch.testing.assert_close(sampled.y64, at, rtol=1e-11, atol=1e-11)
    scale = sampled.sample.take(problem.direction.output, reference.scale)
    torch.testing.assert_close(sampled.scale, scale, rtol=1e-11, atol=1e-11)
    if Role.DB in problem.outputs:
        assert reference.bias is not None
        sums = ahead(problem, given).sum([0, *range(2, problem.rank + 2)]) + problem.epilogue.accumulate
        torch.testing.assert_close(reference.bias.y64, sums, rtol=1e-11, atol=1e-11)


@pytest.mark.parametrize("dtype", IN_PYTORCH)
@pytest.mark.parametrize("text", ALL)
def test_pytorchs_own_functions_are_right(text: str, dtype: DType) -> None:
    problem = ConvProblem.parse(f"{text} dt:{dtype}")
    arithmetic = {DType.FP64: Arithmetic.FP64, DType.FP32: Arithmetic.FP32}.get(dtype, Arithmetic.FP16_ACC32)
    for reference in (Reference.of, sampled_reference):
        errors = ErrorCheck(problem, "cpu", kinds=ERROR_KINDS, reference=reference).errors(torchs(problem))
        assert absolute_objection(problem, arithmetic, errors, Policy()) is None


def without(role: Role, value: float) -> Callable[[Run], Run]:
    """Takes no notice of an operand."""
    return lambda run: lambda given: run({**given, role: torch.full_like(given[role], value)})


def spoiled(run: Run) -> Run:
    def wrong(given: Given) -> Tensor:
        result = run(given)
        given[Role.DB][-1] *= 1.01
        return result

    return wrong


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        (FORWARD, without(Role.SCALE, 1.0)),
        (FORWARD, without(Role.BEFORE, 0.0)),
        (DATA, without(Role.SCALE, 1.0)),
        (DATA, without(Role.Z, 1.0)),
        (DATA, without(Role.BEFORE, 0.0)),
        (WEIGHT, without(Role.Z, 1.0)),
        (WEIGHT, without(Role.BEFORE, 0.0)),
        (WEIGHT, spoiled),
    ],
)
def test_what_takes_no_notice_of_an_operand_is_found_out(text: str, wrong: Callable[[Run], Run]) -> None:
    problem = ConvProblem.parse(text)

    def objection(run: Run) -> str | None:
        errors: tuple[KindError, ...] = ErrorCheck(problem, "cpu", kinds=[Kind.NORMAL]).errors(run)
        return absolute_objection(problem, Arithmetic.FP32, errors, Policy())

    assert objection(torchs(problem)) is None
    assert "largest scaled error on normal data" in str(objection(wrong(torchs(problem))))


def test_a_bias_gradient_that_nobody_wrote_is_found_out() -> None:
    problem = ConvProblem.parse(SMOOTH)
    run = torchs(problem)
    check = ErrorCheck(problem, "cpu", kinds=[Kind.NORMAL])
    (error,) = check.errors(lambda given: run({**given, Role.DB: torch.empty(8)}))
    assert error.scaled_max == float("inf")


@pytest.mark.parametrize("text", ALL)
def test_whole_numbers_are_exact(text: str) -> None:
    problem = ConvProblem.parse(text.replace("silu", "relu").replace("gelu", "relu").replace("hardswish", "relu"))
    tensors = data(problem, Kind.INTEGERS, "cpu")
    reference = Reference.of(problem, tensors)
    if reference.bias is not None:
        tensors[Role.DB] = torch.ones(8) if problem.epilogue.accumulate else torch.empty(8)
    assert errors_of(torchs(problem)(tensors), reference) == (0.0, 0.0)
    assert reference.bias is None or errors_of(tensors[Role.DB], reference.bias) == (0.0, 0.0)


@pytest.mark.parametrize("direction", Direction)
def test_a_gradient_without_an_epilogue_has_no_bias(direction: Direction) -> None:
    problem = ConvProblem.parse("mb2ic6ih11oc8kh3ph1").asking(direction)
    assert Reference.of(problem, data(problem, Kind.NORMAL, "cpu")).bias is None
