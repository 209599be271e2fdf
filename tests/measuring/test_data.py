"""The kinds of data are what they say, in the memory layout that the problem says."""

from __future__ import annotations

import pytest
import torch

from convwright.core.direction import Direction, Role
from convwright.core.dtype import IN_PYTORCH, DType
from convwright.core.problem import ConvProblem
from convwright.core.tensor_spec import TensorSpec
from convwright.measuring.checking.data import ERROR_KINDS, FINITE_KINDS, Kind, operands
from convwright.measuring.checking.reference import Reference
from convwright.tensors import torch_dtype

PROBLEM = "mb2ic16ih17oc24kh3ph1 ep:residual+bias+relu"


def asking(direction: Direction, dtype: DType, text: str = PROBLEM) -> ConvProblem:
    return ConvProblem.parse(f"{text} dt:{dtype}").asking(direction)


@pytest.mark.parametrize("direction", Direction)
@pytest.mark.parametrize("dtype", IN_PYTORCH)
@pytest.mark.parametrize("kind", Kind)
def test_every_operand_has_its_shape_strides_and_dtype(direction: Direction, dtype: DType, kind: Kind) -> None:
    problem = asking(direction, dtype)
    made = operands(problem, kind, "cpu")
    assert made.keys() == problem.operands.keys() - {direction.output}
    for role, tensor in made.items():
        spec = problem.operands[role]
        assert (tuple(tensor.shape), tensor.stride(), tensor.dtype) == (spec.shape, spec.strides, torch_dtype(dtype))


@pytest.mark.parametrize("direction", Direction)
@pytest.mark.parametrize("dtype", IN_PYTORCH)
@pytest.mark.parametrize("kind", FINITE_KINDS)
def test_finite_kinds_and_their_results_are_in_range(direction: Direction, dtype: DType, kind: Kind) -> None:
    problem = asking(direction, dtype)
    made = operands(problem, kind, "cpu")
    assert all(tensor.isfinite().all() for tensor in made.values())
    reference = Reference.of(problem, made)
    assert reference.y64.to(torch_dtype(dtype)).isfinite().all()
    assert reference.scale.min() > 0


@pytest.mark.parametrize("dtype", IN_PYTORCH)
def test_large_comes_near_the_ends_of_the_range(dtype: DType) -> None:
    made, limits = operands(asking(Direction.FORWARD, dtype), "large", "cpu"), torch.finfo(torch_dtype(dtype))
    exponents = torch.tensor([limits.max, limits.tiny], dtype=torch.float64).log2()
    assert made[Role.X].abs().max().double().log2() > 0.8 * exponents[0]
    assert made[Role.W].abs().median().double().log2() < 0.8 * exponents[1]


def test_positive_is_as_after_a_relu() -> None:
    made = operands(asking(Direction.FORWARD, DType.FP32), "positive", "cpu")
    assert made[Role.X].min() == 0
    assert 0.4 < (made[Role.X] == 0).double().mean() < 0.6
    assert made[Role.W].min() < 0


def test_channels_are_scaled_from_a_thousandth_to_a_thousand() -> None:
    x = operands(asking(Direction.FORWARD, DType.FP32), "channel-scaled", "cpu")[Role.X]
    sizes = x.square().mean(dim=(0, 2, 3)).sqrt()
    assert sizes.min() == pytest.approx(1e-3, rel=0.2)
    assert sizes.max() == pytest.approx(1e3, rel=0.2)


@pytest.mark.parametrize("direction", Direction)
@pytest.mark.parametrize("text", [PROBLEM, "ic3ih9oc4kh1sh2", "ic2ih20oc2kh2sh3dh1", "ic1ih3oc1kh5ph2"])
def test_the_one_infinity_meets_the_result(direction: Direction, text: str) -> None:
    problem = asking(direction, DType.FP32, text)
    for kind, wrong in (("infinity", torch.isinf), ("nan", torch.isnan)):
        made = operands(problem, kind, "cpu")
        assert sum(int(wrong(tensor).sum()) for tensor in made.values()) == 1
        y64 = Reference.of(problem, made).y64
        assert not y64.isfinite().all()


@pytest.mark.parametrize("direction", Direction)
@pytest.mark.parametrize("dtype", IN_PYTORCH)
def test_integers_have_exact_results(direction: Direction, dtype: DType) -> None:
    for text in (PROBLEM, "mb8ic256ih14oc32kh3ph1"):
        problem = asking(direction, dtype, text)
        reference = Reference.of(problem, operands(problem, "integers", "cpu"))
        assert reference.y64.count_nonzero() > 0
        assert torch.equal(reference.y64.to(torch_dtype(dtype)).double(), reference.y64)
        assert reference.scale.max() <= 1 / dtype.roundoff / 2


def test_gaps_between_elements_hold_nan() -> None:
    spec = TensorSpec((2, 4, 5, 5), DType.FP32, (400, 50, 10, 2))
    base = ConvProblem.parse("mb2ic4ih5oc4kh3ph1")
    x = operands(ConvProblem(spec, base.w, base.y, (1, 1), ((1, 1), (1, 1)), (1, 1)), "normal", "cpu")[Role.X]
    assert x.stride() == spec.strides
    assert x.isfinite().all()
    memory = x.as_strided((spec.span_bytes // 4,), (1,))
    assert memory.isnan().sum() == memory.numel() - x.numel()


def test_an_expanded_operand_holds_one_value() -> None:
    spec = TensorSpec((2, 4, 5, 5), DType.FP32, (0, 25, 5, 1))
    base = ConvProblem.parse("mb2ic4ih5oc4kh3ph1")
    x = operands(ConvProblem(spec, base.w, base.y, (1, 1), ((1, 1), (1, 1)), (1, 1)), "normal", "cpu")[Role.X]
    assert x.stride() == spec.strides
    assert torch.equal(x[0], x[1])
    assert x.isfinite().all()


def test_equal_seeds_give_equal_data() -> None:
    problem = asking(Direction.FORWARD, DType.FP32)
    first, again, other = (operands(problem, "normal", "cpu", seed=seed) for seed in (1, 1, 2))
    assert torch.equal(first[Role.X], again[Role.X])
    assert not torch.equal(first[Role.X], other[Role.X])


def test_an_empty_batch_has_data_of_every_kind() -> None:
    problem = ConvProblem.of((0, 4, 5, 5), (4, 4, 3, 3))
    assert all(operands(problem, kind, "cpu")[Role.X].numel() == 0 for kind in ERROR_KINDS)


def test_the_reduction_is_that_of_the_direction() -> None:
    problem = ConvProblem.parse("g2mb3ic8ih7oc12kh3ph1")
    assert [problem.asking(direction).reduction for direction in Direction] == [36, 54, 147]
