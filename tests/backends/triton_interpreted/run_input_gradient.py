"""An input's gradient in Triton's interpreter. Its own process runs this, as it does for the implicit GEMM."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given as drawn
from hypothesis import settings
from hypothesis import strategies as st

pytest.importorskip("triton")

from backends.triton_interpreted.cases import PLANES, Case, listed
from backends.triton_interpreted.input_gradient_cases import STRIDED, Operands, all_tiles, gradient
from convwright.backends.triton.backend import TritonKernels
from convwright.backends.triton.gemm.algorithms import algorithms_of
from convwright.backends.triton.gemm.tiles import Tile
from convwright.backends.triton.input_gradient.offers import KERNEL, blocks_of, phases, refusal_reason
from convwright.core.candidate import Candidate, Refusal
from convwright.core.direction import Direction, Role
from convwright.core.dtype import DType
from convwright.core.error_rule import absolute_objection
from convwright.core.policy import Policy
from convwright.core.problem import ConvProblem
from convwright.core.tensor_spec import Layout
from convwright.measuring.checking.error import ErrorCheck
from convwright.measuring.hardware.machine import device_facts
from convwright.tensors import torch_dtype
from problem_space import operands, oracle, problems, run

BACKEND, CPU = TritonKernels(), device_facts("cpu")
FP16_AND_FP32 = [DType.FP16, DType.FP32]
ARITHMETICS = [(dtype, algorithm.name) for dtype in FP16_AND_FP32 for algorithm in algorithms_of(KERNEL, dtype)]
SAME = ((1, 1), (1, 1))
LONG_SUMS = Case((1, 16, 5, 5), (64, 16, 3, 3), (2, 2), SAME)


def offered(problem: ConvProblem) -> list[Candidate]:
    offers = listed(KERNEL, problem, CPU)
    found = [offer for offer in offers if isinstance(offer, Candidate)]
    assert found
    assert found == offers
    return found


def least_of_each(problem: ConvProblem) -> dict[str, Candidate]:
    """By the names of the algorithms, of each what the interpreter has least to do for: its arithmetic is the same in
    every tile."""
    return {candidate.algorithm: candidate for candidate in sorted(offered(problem), key=turns, reverse=True)}


def turns(candidate: Candidate) -> int:
    """Of all programs; to begin and to end takes one as long as some of them."""
    problem, tile = candidate.problem, Tile.of(candidate)
    return sum(blocks_of(phase, problem, tile) * (4 + tile.steps(problem.k, phase.taps)) for phase in phases(problem))


def exact(candidate: Candidate, given: Operands, expected: torch.Tensor) -> bool:
    dx = given.computed(BACKEND.build(candidate, CPU))
    return torch.equal(dx, expected.to(torch_dtype(candidate.problem.dtype)))


# Each case with one of the arithmetics, by turns; other tiles have their turn below.
@pytest.mark.parametrize(
    ("name", "dtype", "algorithm"), [(name, *ARITHMETICS[i % 5]) for i, name in enumerate(STRIDED)]
)
def test_small_integers_come_out_exactly(name: str, dtype: DType, algorithm: str) -> None:
    problem = gradient(STRIDED[name], dtype)
    given = Operands.of(problem, "cpu", integers=True)
    candidate = least_of_each(problem)[algorithm]
    assert exact(candidate, given, given.expected(problem)), candidate.id


# So many that each arithmetic meets each way to lie.
IN_PLANES = ["3x3", "stem", "slice of a wider buffer", "1-D"]
LYING = [(IN_PLANES[i % 4], *ARITHMETICS[i % 5], *PLANES[i % 3]) for i in range(15)]


@pytest.mark.parametrize(("name", "dtype", "algorithm", "dy", "dx"), LYING)
def test_operands_may_lie_in_planes(name: str, dtype: DType, algorithm: str, dy: Layout, dx: Layout) -> None:
    problem = gradient(STRIDED[name], dtype, dy, dx)
    given = Operands.of(problem, "cpu", integers=True)
    candidate = least_of_each(problem)[algorithm]
    assert exact(candidate, given, given.expected(problem)), candidate.id


# 17 channels make a step of the sum run across taps, 56 keep to one tap and leave a tail in it.
@pytest.mark.parametrize(("channels", "first"), [(17, 0), (56, 1)])
@pytest.mark.parametrize("dtype", FP16_AND_FP32)
def test_tiles_handle_their_tails(dtype: DType, channels: int, first: int) -> None:
    problem = gradient(Case((1, 19, 3, 7), (channels, 19, 2, 3), (1, 2), ((1, 0), (0, 1))), dtype)
    given = Operands.of(problem, "cpu", integers=True)
    expected = given.expected(problem)
    for candidate in all_tiles(problem)[first :: 3 if dtype is DType.FP16 else 7]:
        assert exact(candidate, given, expected), candidate.id


SERVED = problems(least_images=1).map(lambda each: each.asking(Direction.BACKWARD_DATA))


@settings(max_examples=10)
@drawn(SERVED, st.data())
def test_any_problem_that_is_served(problem: ConvProblem, data: st.DataObject) -> None:
    if refusal_reason(problem) is not None:
        assert all(isinstance(offer, Refusal) for offer in listed(KERNEL, problem, CPU))
        return
    given = operands(problem, seed=2)
    plan = BACKEND.build(data.draw(st.sampled_from(offered(problem))), CPU)
    torch.testing.assert_close(run(plan, given).double(), oracle(problem, given), rtol=0, atol=0)


@pytest.mark.filterwarnings("ignore:invalid value encountered")
@pytest.mark.parametrize("dtype", FP16_AND_FP32)
def test_errors_on_every_kind_of_data_are_explained(dtype: DType) -> None:
    """Infinities and NaNs among them."""
    problem = gradient(Case((1, 3, 3, 4), (8, 3, 2, 2), (1, 2), SAME), dtype)
    check = ErrorCheck(problem, "cpu")
    for candidate in least_of_each(problem).values():
        plan = BACKEND.build(candidate, CPU)
        errors = check.errors(lambda given, plan=plan: plan(given[Role.DY], plan.prepare(given[Role.W])))
        assert absolute_objection(problem, candidate.arithmetic, errors, Policy()) is None, candidate.id


@pytest.mark.filterwarnings("ignore:invalid value encountered")
@pytest.mark.parametrize("bits", [0x7F800000, 0x7FC00000, 0x7FFFFFFF])
def test_what_is_not_finite_in_a_weight_lands_where_it_belongs(bits: int) -> None:
    """An infinity, PyTorch's NaN and CUDA's, which rounding on the bits would turn into a zero."""
    problem = gradient(Case((1, 6, 3, 6), (8, 6, 2, 2), (2, 2)), DType.FP32)
    given = Operands.of(problem, "cpu", integers=False)
    given.w[3, 4, 1, 1] = torch.tensor(bits, dtype=torch.uint32).view(torch.float32)
    expected = given.expected(problem).float()
    assert expected.isfinite().sum() == expected.numel() - 3
    for candidate in least_of_each(problem).values():
        bound = 1e-5 if "3xtf32" in candidate.algorithm else 2e-2
        dx = given.computed(BACKEND.build(candidate, CPU))
        assert torch.allclose(dx, expected, rtol=bound, atol=bound, equal_nan=True), candidate.id


def test_three_products_of_tf32_parts_are_as_good_as_fp32_and_one_is_rounded() -> None:
    """Inputs rounded to 11 bits err by 2^-11.75 on average; cut, as the tensor cores do, by 2.7 times as much."""
    problem = gradient(LONG_SUMS, DType.FP32)
    given = Operands.of(problem, "cpu", integers=False)
    expected = given.expected(problem)
    for candidate in least_of_each(problem).values():
        error = (given.computed(BACKEND.build(candidate, CPU)).double() - expected).norm() / expected.norm()
        assert (error < 4e-7) if "3xtf32" in candidate.algorithm else (2e-4 < error < 4e-4), candidate.id


def test_a_short_sum_is_as_good_as_its_rounding() -> None:
    """Four products, as soon as the sum of one phase is short: here those of one of four are of 4 numbers."""
    problem = gradient(Case((1, 6, 7, 8), (4, 6, 3, 3), (2, 2)), DType.FP32)
    given = Operands.of(problem, "cpu", integers=False)
    expected = given.expected(problem)
    for candidate in (each for each in least_of_each(problem).values() if "3xtf32" in each.algorithm):
        error = (given.computed(BACKEND.build(candidate, CPU)).double() - expected).norm() / expected.norm()
        assert error < 6e-8, candidate.id


def test_an_output_is_made_where_none_is_given() -> None:
    problem = gradient(STRIDED["slice of a wider buffer"], DType.FP16)
    given = Operands.of(problem, "cpu", integers=True)
    plan = BACKEND.build(least_of_each(problem)["input-gradient"], CPU)
    dx = plan(given.dy, plan.prepare(given.w))
    assert dx.stride() == problem.x.strides
    assert torch.equal(dx, given.expected(problem).half())


def test_the_interpreter_is_not_asked_for_bf16() -> None:
    (offer,) = listed(KERNEL, gradient(STRIDED["3x3"], DType.BF16), CPU)
    assert isinstance(offer, Refusal)
    assert offer.id == "triton/input-gradient"
    assert "bf16" in offer.reason
