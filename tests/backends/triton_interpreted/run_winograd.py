"""Our Winograd convolution in Triton's interpreter. Its own process runs this, as it does for the implicit GEMM."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from typing import Any

import pytest
import torch
from hypothesis import given as drawn
from hypothesis import settings
from hypothesis import strategies as st

pytest.importorskip("triton")

from backends.triton_interpreted.cases import Case, Operands, exact, listed, oracle
from backends.triton_interpreted.winograd_cases import SAME, SERVED, computed, computed_once, every_tile
from convwright.backends.triton.backend import TritonKernels
from convwright.backends.triton.gemm.algorithms import algorithm_of
from convwright.backends.triton.gemm.tiles import Tile
from convwright.backends.triton.winograd.offers import KERNEL, refusal_reason, tiles_of
from convwright.core.candidate import Candidate, Refusal
from convwright.core.direction import Direction, Role
from convwright.core.dtype import DType
from convwright.core.error_rule import absolute_objection
from convwright.core.policy import Policy
from convwright.core.problem import ConvProblem
from convwright.core.tensor_spec import Layout, TensorSpec
from convwright.errors import BadInput
from convwright.measuring.checking.error import ErrorCheck
from convwright.measuring.hardware.machine import device_facts
from convwright.rewrites import rewrite, wrap_plan
from convwright.tensors import empty
from problem_space import operands, specs
from problem_space import oracle as oracle_by_role
from problem_space import run as run_by_role

BACKEND, CPU = TritonKernels(), device_facts("cpu")
LAYOUTS = list(product((Layout.NHWC, Layout.NCHW), repeat=2))


def run(candidate: Candidate, given: Operands) -> torch.Tensor:
    return computed(BACKEND.build(candidate, CPU), given)


def least_of_each(problem: ConvProblem) -> list[Candidate]:
    """Of each algorithm what the interpreter has least to do for: its arithmetic is the same in every tile."""
    most_first = sorted(every_tile(problem), key=sums, reverse=True)
    return list({candidate.algorithm: candidate for candidate in most_first}.values())


def sums(candidate: Candidate) -> tuple[int, int]:
    """Of all programs, whether or not they are kept; what is computed again is so a few channels at a time."""
    tile = Tile.of(candidate)
    return tiles_of(tile, candidate.problem) * (tile.bm * tile.bn + 4096), tile.bn


# Each case with one algorithm and one way to lie, by turns; the other tiles have their turn below.
@pytest.mark.parametrize(("name", "turn"), [(name, turn) for turn, name in enumerate(SERVED)])
def test_small_integers_come_out_exactly(name: str, turn: int) -> None:
    """A transformed weight has quarters, of which two TF32 numbers hold as many places as of whole numbers."""
    problem = SERVED[name].problem(DType.FP32, *LAYOUTS[turn % 4])
    given = Operands.of(problem, "cpu", integers=True)
    candidate = least_of_each(problem)[turn // 4 % 2]
    y = computed_once(BACKEND.build(candidate, CPU), given)
    assert torch.equal(y, exact(oracle(problem, given), problem)), candidate.id


@pytest.mark.parametrize(("x", "y"), LAYOUTS)
def test_operands_may_lie_either_way(x: Layout, y: Layout) -> None:
    problem = SERVED["slice of a wider buffer"].problem(DType.FP32, x, y)
    given = Operands.of(problem, "cpu", integers=True)
    expected = exact(oracle(problem, given), problem)
    for candidate in least_of_each(problem):
        assert torch.equal(computed_once(BACKEND.build(candidate, CPU), given), expected), candidate.id


@pytest.mark.slow
# 35 channels leave a tail in the sum, 35 patches one in the pixels.
def test_every_tile_handles_its_tails() -> None:
    problem = Case((1, 35, 9, 13), (35, 35, 3, 3), padding=SAME, epilogue="bias").problem(DType.FP32)
    given = Operands.of(problem, "cpu", integers=True)
    expected = exact(oracle(problem, given), problem)
    for candidate in every_tile(problem):
        assert torch.equal(computed_once(BACKEND.build(candidate, CPU), given), expected), candidate.id


@st.composite
def windows(draw: st.DrawFn) -> ConvProblem:
    """Of 3x3 taps, on operands with gaps or without."""
    padding = tuple((draw(st.integers(0, 3)), draw(st.integers(0, 3))) for _ in range(2))
    sizes = [max(3 - sum(sides), 1) + draw(st.integers(0, 4)) for sides in padding]
    channels = st.integers(15, 19)
    x = (draw(st.integers(1, 2)), draw(channels), *sizes)
    problem = ConvProblem.of_specs(
        draw(specs(x, DType.FP32)), draw(specs((draw(channels), x[1], 3, 3), DType.FP32)), stride=(1, 1),
        padding=padding, dilation=(1, 1), flip=draw(st.booleans()),
    )  # fmt: skip
    return replace(problem, y=draw(specs(problem.y.shape, DType.FP32)))


@settings(max_examples=6)
@drawn(windows(), st.integers(0, 1))
def test_any_problem_that_is_served(problem: ConvProblem, which: int) -> None:
    if refusal_reason(problem) is not None:
        assert all(isinstance(offer, Refusal) for offer in listed("winograd", problem, CPU))
        return
    given = operands(problem, seed=2)
    candidate = least_of_each(problem)[which]
    y = run_by_role(BACKEND.build(candidate, CPU), given)
    torch.testing.assert_close(y.double(), oracle_by_role(problem, given), rtol=0, atol=0, msg=candidate.id)


def test_gradients_of_inputs_come_out_exactly_inside_a_rewrite() -> None:
    problem = ConvProblem.parse("mb1ic18ih4iw5oc17kh3ph1 dir:backward_data")
    forward = rewrite("as-forward").inner(problem, ())
    assert refusal_reason(forward) is None
    given = operands(problem, seed=3)
    expected = oracle_by_role(problem, given)
    for leaf in least_of_each(forward):
        candidate = rewrite("as-forward").wrap(problem, (), leaf)
        plan = wrap_plan(candidate, lambda each: BACKEND.build(each, CPU))
        assert torch.equal(run_by_role(plan, given).double(), expected), candidate.id


def test_a_gradient_is_offered_in_that_rewrite() -> None:
    problem = ConvProblem.parse("mb32ic64ih56oc64kh3ph1 dir:backward_data tag:nhwc")
    forward = rewrite("as-forward").inner(problem, ())
    assert forward.direction is Direction.FORWARD
    assert all(isinstance(offer, Candidate) for offer in listed("winograd", forward, CPU))


@pytest.mark.filterwarnings("ignore:invalid value encountered")
def test_errors_on_every_kind_of_data_are_explained() -> None:
    """Infinities and NaNs among them."""
    problem = Case((1, 16, 3, 2), (16, 16, 3, 3), padding=SAME).problem(DType.FP32)
    plan = BACKEND.build(least_of_each(problem)[0], CPU)
    errors = ErrorCheck(problem, "cpu").errors(lambda given: plan(given[Role.X], plan.prepare(given[Role.W])))
    assert absolute_objection(problem, plan.candidate.arithmetic, errors, Policy()) is None


@pytest.mark.filterwarnings("ignore:invalid value encountered")
@pytest.mark.parametrize(
    ("place", "bits", "which"),
    [("x", 0x7F800000, 0), ("w", 0xFF800000, 0), ("x", 0x7FC00000, 1), ("x", 0x7FFFFFFF, 0), ("w", 0x7FFFFFFF, 1)],
)
def test_what_is_not_finite_lands_where_it_belongs(place: str, bits: int, which: int) -> None:
    """An infinity of each sign, PyTorch's NaN and CUDA's, which rounding on the bits would turn into a zero."""
    problem = Case((1, 16, 3, 5), (18, 16, 3, 3), padding=SAME, epilogue="residual+bias").problem(DType.FP32)
    given = Operands.of(problem, "cpu", integers=False)
    getattr(given, place)[0, 3, 1, 1] = torch.tensor(bits, dtype=torch.uint32).view(torch.float32)
    expected = oracle(problem, given).float()
    assert expected.isfinite().any(), "the transforms alone would spread it to these"
    candidate = least_of_each(problem)[which]
    assert torch.allclose(run(candidate, given), expected, rtol=1e-5, atol=1e-5, equal_nan=True), candidate.id


@pytest.mark.filterwarnings("ignore:invalid value encountered", "ignore:overflow encountered")
@pytest.mark.parametrize(("large", "small", "which"), [("x", "w", 0), ("w", "x", 1)])
def test_transforms_overflow_where_the_result_does_not(large: str, small: str, which: int) -> None:
    """Numbers of both signs near the end of the range, whose differences or sums are beyond it."""
    problem = Case((1, 16, 4, 4), (16, 16, 3, 3), padding=SAME).problem(DType.FP32)
    given = Operands.of(problem, "cpu", integers=False)
    getattr(given, large).clamp_(-2, 2).mul_(1.5e38)
    getattr(given, small).mul_(1e-4)
    expected = oracle(problem, given)
    assert expected.abs().max() < 1e37
    candidate = least_of_each(problem)[which]
    error = (run(candidate, given).double() - expected).norm() / expected.norm()
    assert error < 4e-7, candidate.id


@pytest.mark.filterwarnings("ignore:invalid value encountered")
def test_a_tile_that_is_computed_again_has_its_epilogue() -> None:
    """In planes, with tails, and with more tiles than the one that holds the infinity."""
    problem = Case((1, 16, 11, 13), (35, 16, 3, 3), padding=SAME, epilogue="residual+bias+relu").problem(
        DType.FP32, Layout.NCHW, Layout.NCHW
    )
    given = Operands.of(problem, "cpu", integers=True)
    given.x[0, 5, 2, 3] = torch.inf
    given.w[given.w == 0] = 1
    expected = exact(oracle(problem, given), problem)
    assert expected.isinf().any()
    candidate = every_tile(problem)[-1]
    assert tiles_of(Tile.of(candidate), problem) > 1
    assert torch.equal(run(candidate, given), expected), candidate.id


def test_three_products_of_tf32_parts_are_as_good_as_fp32() -> None:
    problem = Case((1, 128, 4, 6), (16, 128, 3, 3), padding=SAME).problem(DType.FP32)
    given = Operands.of(problem, "cpu", integers=False)
    expected = oracle(problem, given)
    for candidate in least_of_each(problem):
        error = (run(candidate, given).double() - expected).norm() / expected.norm()
        assert error < 4e-7, candidate.id


def test_an_output_is_made_where_none_is_given() -> None:
    problem = SERVED["odd image"].problem(DType.FP32)
    given = Operands.of(problem, "cpu", integers=True)
    plan = BACKEND.build(least_of_each(problem)[0], CPU)
    y = plan(given.x, plan.prepare(given.w), given.bias, given.residual)
    assert y.stride() == problem.y.strides
    assert torch.equal(y, exact(oracle(problem, given), problem))


def test_operands_that_do_not_fit_the_epilogue_are_named() -> None:
    problem = SERVED["even image"].problem(DType.FP32)
    given = Operands.of(problem, "cpu", integers=True)
    plan = BACKEND.build(least_of_each(problem)[0], CPU)
    with pytest.raises(BadInput, match=r"bias\+relu, got neither bias nor residual"):
        plan(given.x, plan.prepare(given.w))


def test_a_weight_may_lie_in_any_order() -> None:
    problem = SERVED["flipped"].problem(DType.FP32)
    given = Operands.of(problem, "cpu", integers=True)
    lying = given.w.permute(2, 0, 3, 1).contiguous().permute(1, 3, 0, 2)
    turned = replace(problem, w=TensorSpec(problem.w.shape, DType.FP32, lying.stride()))
    for candidate in least_of_each(turned):
        y = run(candidate, replace(given, w=lying))
        assert torch.equal(y, exact(oracle(problem, given), problem)), candidate.id


@pytest.mark.parametrize("flip", [False, True])
def test_a_prepared_weight_is_the_transformed_one_and_the_weight_itself(flip: bool) -> None:
    problem = Case((1, 18, 4, 4), (16, 18, 3, 3), flip=flip).problem(DType.FP32)
    weight = torch.randn(16, 3, 18, 3).permute(0, 2, 3, 1)
    g = torch.tensor([[1, 0, 0], [0.5, 0.5, 0.5], [0.5, -0.5, 0.5], [0, 0, 1]], dtype=torch.float64)
    taps = weight.flip(2, 3) if flip else weight
    expected = torch.einsum("ir,kcrs,js->ijkc", g, taps.double(), g).reshape(16, 16, 18)
    for candidate in every_tile(problem):
        split = algorithm_of(candidate, KERNEL).split
        plan: Any = BACKEND.build(candidate, CPU)
        prepared = plan.prepare(empty(problem.w, weight.device).copy_(weight))
        assert prepared.is_contiguous()
        parts = prepared[: -9 * 18 * 16].view(-1, 16, 16, 20)
        assert len(parts) == 1 + split
        assert (parts[..., 18:] == 0).all()
        assert torch.allclose(parts[..., :18].double().sum(0), expected, rtol=2.0**-24, atol=2.0**-40)
        if split:
            assert (parts[0].view(torch.int32) & 0x1FFF == 0).all()
        assert torch.equal(prepared[-9 * 18 * 16 :].view(3, 3, 18, 16), taps.permute(2, 3, 1, 0))
