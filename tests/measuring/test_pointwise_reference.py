"""The float64 reference of expressions, and the errors that its bound allows."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from convwright.core.dtype import Arithmetic, DType
from convwright.core.error_rule import absolute_objection
from convwright.core.kinds.expression import Cast, Constant, Expression, Operand, evaluate, names
from convwright.core.kinds.pointwise import PointwiseProblem
from convwright.core.kinds.text import parse
from convwright.core.policy import Policy
from convwright.core.tensor_spec import TensorSpec
from convwright.measuring.checking import pointwise
from convwright.measuring.checking.data import ERROR_KINDS, Kind, operands
from convwright.measuring.checking.error import ErrorCheck, errors_of
from convwright.measuring.checking.of_kind import sampled_reference, whole_reference
from convwright.measuring.checking.parts import Slices
from convwright.tensors import empty, torch_dtype
from convwright.torch_operators import FUNCTIONS
from kind_space import expressions

CPU = torch.device("cpu")


def in_fp32(problem: PointwiseProblem, tensors: dict[str, torch.Tensor]) -> torch.Tensor:
    """What a kernel computes: fp32 inside, rounded once at the end."""

    def compute(step: Expression, values: list[torch.Tensor]) -> torch.Tensor:
        if isinstance(step, Operand):
            return tensors[step.name].float()
        if isinstance(step, Constant):
            return torch.tensor(step.value)
        if isinstance(step, Cast):
            return values[0].to(torch_dtype(step.dtype)).float()
        return FUNCTIONS[step.operator](*values)

    return empty(problem.y, CPU).copy_(evaluate(problem.expression, compute))


@settings(max_examples=300)
@given(expressions(), st.sampled_from((DType.FP32, DType.FP16, DType.BF16)), st.sampled_from(ERROR_KINDS[:3]))
def test_arithmetic_in_fp32_errs_by_no_more_than_the_bound(expression: Expression, dtype: DType, kind: Kind) -> None:
    spec = TensorSpec((3, 4, 5), dtype)
    problem = PointwiseProblem(expression, tuple((name, spec) for name in names(expression)), spec)
    check = ErrorCheck(problem, CPU, kinds=[kind])
    errors = check.errors(lambda tensors: in_fp32(problem, tensors))
    said = absolute_objection(problem, Arithmetic.FP32, errors, Policy())
    # What overflows inside has no right answer in fp32.
    assert said is None or "wrong infinities" in said, (problem.key, said)


@pytest.mark.parametrize(
    ("expression", "wrong"),
    [("a + b", "a + b * 1.000001"), ("relu(a * b)", "a * b"), ("a * sigmoid(b)", "a * sigmoid(b + 0.00001)"),
     ("where(a > b, a, 0)", "where(a > b, a, 0.001)"), ("gelu(a) + b", "silu(a) + b")],
)  # fmt: skip
@pytest.mark.parametrize("reference", [whole_reference, sampled_reference])
def test_a_wrong_result_is_seen(expression: str, wrong: str, reference) -> None:  # type: ignore[no-untyped-def]
    problem, other = (parse(f'pointwise "{each}" mb2ic8ih6') for each in (expression, wrong))
    assert isinstance(problem, PointwiseProblem)
    assert isinstance(other, PointwiseProblem)
    tensors = operands(problem, Kind.NORMAL, CPU)
    right = reference(problem, tensors)
    assert errors_of(in_fp32(problem, tensors), right)[1] <= problem.error_bound(Arithmetic.FP32)
    assert errors_of(in_fp32(other, tensors), right)[1] > 2 * problem.error_bound(Arithmetic.FP32)


def test_one_wrong_element_at_an_infinity_is_seen() -> None:
    problem = parse('pointwise "a + s" mb2ic8ih6 s:c')
    tensors = operands(problem, Kind.INFINITY, CPU)
    assert isinstance(problem, PointwiseProblem)
    assert tensors["a"].isinf().sum() == tensors["s"].isinf().sum() == 1
    right = sampled_reference(problem, tensors)
    result = in_fp32(problem, tensors)
    assert errors_of(result, right)[0] < 1e-7
    result[1, 4, 3, 3] = 1e38
    assert errors_of(result, right) == (float("inf"), float("inf"))


def test_a_cast_inside_allows_its_rounding_and_no_more() -> None:
    problem = parse('pointwise "fp16(a) * b" mb2ic8ih6')
    assert isinstance(problem, PointwiseProblem)
    tensors = operands(problem, Kind.NORMAL, CPU)
    right = whole_reference(problem, tensors)
    assert errors_of(in_fp32(problem, tensors), right)[1] <= 1
    coarser = tensors["a"].bfloat16().float() * tensors["b"]
    assert errors_of(coarser, right)[1] > 4


def test_a_large_output_is_looked_at_on_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    kept = Slices.of((64, 64, 33, 33), 20_000)
    assert 2_000 < kept.shape[0] * kept.shape[1] * kept.shape[2] * kept.shape[3] <= 40_000
    assert all(dim[0] == 0 for dim in kept.kept)
    assert [dim[-1] for dim in kept.kept] == [63, 63, 32, 32]
    assert 32 in kept.kept[0], "where the infinity lies"
    problem = parse('pointwise "a * s + b" mb9ic8ih6 s:c b:1')
    tensors = operands(problem, Kind.NORMAL, CPU)
    whole = pointwise.whole(problem, tensors)  # type: ignore[arg-type]
    monkeypatch.setattr(pointwise.Slices, "of", lambda shape: Slices(((0, 4, 8), (0, 7), (0, 1, 2, 3, 4, 5), (1, 5))))
    part = pointwise.whole(problem, tensors)  # type: ignore[arg-type]
    assert part.y64.shape == (3, 2, 6, 2)
    assert torch.equal(part.y64, whole.y64[[0, 4, 8]][:, [0, 7]][..., [1, 5]])


def test_an_expression_may_be_smaller_than_its_output() -> None:
    problem = parse('pointwise "s + 1" mb2ic8ih6 s:c')
    tensors = operands(problem, Kind.NORMAL, CPU)
    right = whole_reference(problem, tensors)
    assert right.y64.shape == (2, 8, 6, 6)
    assert isinstance(problem, PointwiseProblem)
    assert errors_of(in_fp32(problem, tensors), right)[1] <= 1
