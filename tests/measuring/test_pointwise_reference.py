"""The float64 reference of expressions, and the errors that its bound allows."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from convwright.core.dtype import Arithmetic, DType
from convwright.core.error_rule import absolute_objection
from convwright.core.kinds.expression import Cast, Constant, Expression, Operand, evaluate, is_reduction, names
from convwright.core.kinds.pointwise import PointwiseProblem
from convwright.core.kinds.text import parse
from convwright.core.policy import Policy
from convwright.core.tensor_spec import TensorSpec
from convwright.measuring.checking import pointwise
from convwright.measuring.checking.data import ERROR_KINDS, Kind, operands
from convwright.measuring.checking.error import ErrorCheck, errors_of
from convwright.measuring.checking.of_kind import sampled_reference, whole_reference
from convwright.measuring.checking.parts import InGroups, Slices
from convwright.tensors import empty, torch_dtype
from convwright.torch_operators import FUNCTIONS, REDUCTIONS, in_groups
from kind_space import expressions, row_problems

CPU = torch.device("cpu")


def in_fp32(problem: PointwiseProblem, tensors: dict[str, torch.Tensor]) -> torch.Tensor:
    """What a kernel computes: fp32 inside, rounded once at the end."""
    plain, tensors = problem.ungrouped, {name: in_groups(problem, name, tensor) for name, tensor in tensors.items()}

    def compute(step: Expression, values: list[torch.Tensor]) -> torch.Tensor:
        if is_reduction(step):
            return REDUCTIONS[step.operator](values[0], plain.row, keepdim=True)
        if isinstance(step, Operand):
            return tensors[step.name].float()
        if isinstance(step, Constant):
            return torch.tensor(step.value)
        if isinstance(step, Cast):
            return values[0].to(torch_dtype(step.dtype)).float()
        return FUNCTIONS[step.operator](*values)

    made = empty(problem.y, CPU)
    in_groups(problem, "y", made).copy_(evaluate(problem.expression, compute))
    return made


@pytest.mark.slow
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


@pytest.mark.slow
@settings(max_examples=200)
@given(row_problems((DType.FP32, DType.FP16, DType.BF16)), st.sampled_from((Kind.NORMAL, Kind.POSITIVE)))
def test_rows_in_fp32_err_by_no_more_than_the_bound(problem: PointwiseProblem, kind: Kind) -> None:
    errors = ErrorCheck(problem, CPU, kinds=[kind]).errors(lambda tensors: in_fp32(problem, tensors))
    said = absolute_objection(problem, Arithmetic.FP32, errors, Policy())
    assert said is None or "wrong infinities" in said, (problem.key, said)


@settings(max_examples=30)
@given(row_problems((DType.FP64,), casts=False))
def test_single_rows_are_rows_of_the_whole(problem: PointwiseProblem) -> None:
    tensors = operands(problem, Kind.NORMAL, CPU)
    whole, some = whole_reference(problem, tensors), sampled_reference(problem, tensors)
    assert isinstance(some.sample, InGroups)
    assert some.y64.allclose(some.sample.part.take("y", whole.y64), equal_nan=True)


@pytest.mark.parametrize(
    ("text", "function"),
    [
        ('pointwise "exp(a - max(a)) / sum(exp(a - max(a)))" mb3ic9ih4 row:c', lambda a: a.softmax(1)),
        ('pointwise "a / maximum(sqrt(sum(a * a)), 1e-12)" mb3ic9', torch.nn.functional.normalize),
        (
            'pointwise "(a - mean(a)) * rsqrt(mean((a - mean(a)) * (a - mean(a))) + 1e-5)" mb3ic9ih4 row:chw groups:3',
            lambda a: torch.nn.functional.group_norm(a, 3),
        ),
        ('pointwise "mean(a)" mb3ic9ih4 row:hw y:nc', lambda a: a.mean((2, 3), keepdim=True)),
        (
            'pointwise "(a - mean(a)) * rsqrt(mean((a - mean(a)) * (a - mean(a))) + 1e-5)" mb3ic9ih4 row:chw',
            lambda a: torch.nn.functional.layer_norm(a, a.shape[1:]),
        ),
    ],
)
@pytest.mark.parametrize("reference", [whole_reference, sampled_reference])
def test_pieces_of_networks_are_what_pytorch_makes(text: str, function, reference) -> None:  # type: ignore[no-untyped-def]
    problem = parse(text)
    tensors = operands(problem, Kind.NORMAL, CPU)
    right = reference(problem, tensors)
    expected = right.sample.take("y", function(tensors["a"].double()))
    assert right.y64.allclose(expected, rtol=1e-12, atol=1e-12)


def test_the_error_that_a_sum_may_have_grows_with_its_length() -> None:
    scales = []
    for count in (64, 4096):
        problem = parse(f'pointwise "sum(a)" 3x{count} y:3x1')
        tensors = {"a": torch.ones(3, count)}
        reference = whole_reference(problem, tensors)
        scales.append((reference.scale / reference.y64.abs()).max().item())
    # One for the rounding of the result, and one for each addition.
    assert scales == [64.0, 4096.0]


def test_rows_are_never_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    kept = Slices.of((64, 4096), 20_000, row=(1,))
    assert kept.shape[1] == 4096
    assert 3 <= kept.shape[0] <= 8
    problem = parse('pointwise "a - mean(a)" mb9ic8ih6 row:c')
    tensors = operands(problem, Kind.NORMAL, CPU)
    whole = whole_reference(problem, tensors)
    monkeypatch.setattr(pointwise.Slices, "of", lambda shape, row: Slices(((0, 4, 8), tuple(range(8)), (1, 5), (0,))))
    part = whole_reference(problem, tensors)
    assert part.y64.allclose(whole.y64[[0, 4, 8]][:, :, [1, 5]][..., [0]])


@pytest.mark.parametrize(
    ("expression", "wrong"),
    [("a + b", "a + b * 1.000001"), ("relu(a * b)", "a * b"), ("a * sigmoid(b)", "a * sigmoid(b + 0.00001)"),
     ("where(a > b, a, 0)", "where(a > b, a, 0.001)"), ("gelu(a) + b", "silu(a) + b"),
     ("a + b / sum(b * b)", "a + b / sum(b * b * 1.0001)"), ("a * max(b)", "a * max(b * 1.0001)"),
     ("a + mean(b)", "a + sum(b) / 7")],
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
    monkeypatch.setattr(
        pointwise.Slices, "of", lambda shape, row: Slices(((0, 4, 8), (0, 7), (0, 1, 2, 3, 4, 5), (1, 5)))
    )
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
