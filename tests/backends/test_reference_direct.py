"""``reference/direct`` against PyTorch in float64, over the whole space of problems."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from backends.reference_algorithm import CPU, candidate, compute, in_dtype
from convwright.backends.reference.backend import Reference
from convwright.core.direction import Direction, Role
from convwright.core.dtype import IN_PYTORCH, Arithmetic, DType
from convwright.core.epilogue import Activation
from convwright.core.error_bound import scaled_bound
from convwright.core.problem import ConvProblem
from convwright.core.tensor_spec import Layout
from convwright.measuring.checking.data import ERROR_KINDS
from convwright.measuring.checking.error import measure_errors
from problem_space import operands, oracle, problems, run

DIRECT = "reference/direct"
WIDE = st.sampled_from([DType.FP32, DType.FP64])


def depthwise(problem: ConvProblem, members: int) -> ConvProblem:
    """The same window where each group has one input channel and ``members`` output channels."""
    layout = Layout.NHWC if problem.y.layout is Layout.NHWC else Layout.NCHW
    return ConvProblem.of_specs(
        problem.x,
        replace(problem.w, shape=(problem.c * members, 1, *problem.taps), strides=()),
        stride=problem.stride,
        padding=problem.padding,
        dilation=problem.dilation,
        layout=layout,
        groups=problem.c,
        direction=problem.direction,
        epilogue=problem.epilogue,
        flip=problem.flip,
    )


@settings(max_examples=50, deadline=None)
@given(problem=problems(), dtype=WIDE, seed=st.integers(0, 99))
def test_small_integers_are_exact_bit_for_bit(problem: ConvProblem, dtype: DType, seed: int) -> None:
    problem = in_dtype(problem, dtype)
    given = operands(problem, seed)
    assert torch.equal(compute(candidate(problem, DIRECT), given).double(), oracle(problem, given))


@settings(max_examples=50, deadline=None)
@given(problem=problems(), members=st.sampled_from([1, 2, 5]), dtype=WIDE, seed=st.integers(0, 99))
def test_depthwise_is_exact_bit_for_bit(problem: ConvProblem, members: int, dtype: DType, seed: int) -> None:
    problem = in_dtype(depthwise(problem, members), dtype)
    given = operands(problem, seed)
    assert torch.equal(compute(candidate(problem, DIRECT), given).double(), oracle(problem, given))


@settings(max_examples=50, deadline=None)
@given(
    problem=problems(activations=tuple(Activation)),
    members=st.sampled_from([None, 1, 2]),
    dtype=st.sampled_from(IN_PYTORCH),
    seed=st.integers(0, 99),
)
def test_rounding_explains_every_difference(problem: ConvProblem, members: int | None, dtype: DType, seed: int) -> None:
    """Sums are fp32 at least, so that of half types only the result is rounded; activations have slopes up to 1.5."""
    problem = in_dtype(problem if members is None else depthwise(problem, members), dtype)
    given = operands(problem, seed, integers=False)
    linear = replace(problem, epilogue=replace(problem.epilogue, activation=Activation.NONE))
    scale = oracle(linear, {role: tensor.abs() for role, tensor in given.items()})
    bound = scaled_bound(Arithmetic.FP32, dtype, problem.reduction + 2) * dtype.roundoff * 1.5
    difference = compute(candidate(problem, DIRECT), given).double() - oracle(problem, given)
    assert (difference.abs() <= bound * scale).all()


@pytest.mark.parametrize("text", ["mb2ic8ih9oc6kh3ph1", "g8mb2ic8ih9oc8kh3ph1", "mb2ic8ih9oc6kh3ph1 dt:bf16"])
@pytest.mark.parametrize("direction", Direction)
def test_every_kind_of_data_is_right(text: str, direction: Direction) -> None:
    """An infinity or a NaN reaches what it meets and nothing else."""
    problem = ConvProblem.parse(text).asking(direction)
    chosen = candidate(problem, DIRECT)
    bound = scaled_bound(chosen.arithmetic, problem.dtype, problem.reduction)
    found = measure_errors(lambda given: run(Reference().build(chosen, CPU), given), problem, "cpu")
    assert len(found) == len(ERROR_KINDS)
    assert all(error.scaled_max <= bound for error in found)


def test_half_types_are_summed_without_a_rounding_per_tap() -> None:
    # Ones added to a bf16 sum would be lost from 256 on.
    for direction, groups in ((d, g) for d in Direction for g in (1, 2)):
        problem = ConvProblem.of((1, 2, 700), (2, 2 // groups, 300), groups=groups, dtype="bf16", direction=direction)
        given = {role: torch.ones(problem.operands[role].shape).bfloat16() for role in direction.operands}
        result = compute(candidate(problem, DIRECT), given)
        assert torch.equal(result, oracle(problem, given).bfloat16())


@settings(max_examples=30, deadline=None)
@given(problem=problems())
def test_output_and_workspace_may_be_left_to_the_plan(problem: ConvProblem) -> None:
    given = operands(problem, 1)
    chosen = candidate(problem, DIRECT)
    expected, plan = compute(chosen, given), Reference().build(chosen, CPU)
    assert torch.equal(run(plan, given, own_workspace=True), expected)
    first, second = (given[role] for role in problem.direction.operands)
    second = plan.prepare(second) if Role.W in given else second
    result = plan(first, second, given.get(Role.BIAS), given.get(Role.RESIDUAL))
    assert torch.equal(result, expected)
    assert result.stride() == problem.output.strides


def test_a_batch_of_none_gives_no_gradient_but_zeros() -> None:
    for groups in 1, 4:
        problem = ConvProblem.of((0, 4, 6, 6), (4, 4 // groups, 3, 3), groups=groups, direction="backward_weight")
        assert torch.equal(compute(candidate(problem, DIRECT), operands(problem, 0)), torch.zeros(problem.w.shape))


def test_an_expanded_gradient_is_read_as_it_lies() -> None:
    for groups in 1, 2, 4:
        problem = ConvProblem.of((2, 4, 6, 6), (8, 4 // groups, 3, 3), groups=groups)
        flat = replace(problem.y, strides=(0, 0, 0, 0))
        for direction in (Direction.BACKWARD_DATA, Direction.BACKWARD_WEIGHT):
            expanded = replace(problem, direction=direction, y=flat)
            given = operands(problem.asking(direction), 0)
            given[Role.DY] = torch.ones(()).expand(problem.y.shape)
            assert torch.equal(compute(candidate(expanded, DIRECT), given).double(), oracle(expanded, given))


def test_taps_that_only_meet_padding_give_zeros() -> None:
    for groups in 1, 2:
        problem = ConvProblem.of((1, 2, 1), (2, 2 // groups, 5), padding=2, dilation=1, groups=groups)
        for direction in Direction:
            asked = problem.asking(direction)
            given = operands(asked, 3)
            assert torch.equal(compute(candidate(asked, DIRECT), given).double(), oracle(asked, given))


@pytest.mark.parametrize(
    ("text", "nbytes"),
    [
        ("ic16ih8oc8kh3ph1", 16 * 64 * 4),  # one tap's columns
        ("ic16ih8oc8kh1", 0),
        ("mb4ic16ih8oc8kh1 tag:nhwc", 0),
        ("g16mb4ic16ih8oc16kh3ph1", 0),
    ],
)
def test_workspace_is_for_what_cannot_be_multiplied_where_it_lies(text: str, nbytes: int) -> None:
    assert candidate(ConvProblem.parse(text), DIRECT).workspace_bytes == nbytes


def test_what_is_said_of_a_candidate() -> None:
    said = candidate(ConvProblem.parse("mb2ic8ih9oc8kh3ph1"), DIRECT)
    assert (said.id, said.arithmetic, said.deterministic) == ("reference/direct", Arithmetic.FP32, True)
    assert not said.saves_products
    assert candidate(ConvProblem.parse("ic8ih9oc8kh3 dt:fp16"), DIRECT).arithmetic is Arithmetic.FP32
    assert candidate(ConvProblem.parse("ic8ih9oc8kh3 dt:fp64"), DIRECT).arithmetic is Arithmetic.FP64
