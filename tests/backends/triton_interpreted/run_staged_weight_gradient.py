"""The staged weight's gradient in Triton's interpreter. Its own process runs this, as it does for the implicit GEMM."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from math import inf, nan

import pytest
import torch
from hypothesis import given as drawn
from hypothesis import settings
from hypothesis import strategies as st
from torch import Tensor

pytest.importorskip("triton")

from backends.triton_interpreted.cases import Case, listed
from backends.triton_interpreted.fp16_parts_cases import (
    BESIDE_AN_INFINITY,
    LARGEST_ERROR,
    NON_FINITE_BITS,
    each_is_near,
    lies_as_ieee_says,
    number,
    of_one_sign,
)
from backends.triton_interpreted.staged_weight_gradient_cases import ALGORITHM, NAMES, SAME, SERVED, all_tiles, least
from backends.triton_interpreted.weight_gradient_cases import Operands, gradient, with_gaps
from convwright.backends.triton.backend import TritonKernels, kernel_calls
from convwright.backends.triton.parts.sums import is_turned, sum_call
from convwright.backends.triton.staged_weight_gradient.offers import (
    SPLIT,
    refusal_reason,
    staged_gradient,
    staged_input,
)
from convwright.core.candidate import Candidate, Refusal
from convwright.core.direction import Direction
from convwright.core.dtype import Arithmetic, DType
from convwright.core.error_rule import absolute_objection
from convwright.core.policy import Policy
from convwright.core.problem import ConvProblem
from convwright.core.tensor_spec import Layout
from convwright.errors import BadInput
from convwright.measuring.checking.error import ErrorCheck
from convwright.measuring.hardware.machine import device_facts
from problem_space import operands, oracle, problems, run

BACKEND, CPU = TritonKernels(), device_facts("cpu")
LAYOUTS = list(product((Layout.NHWC, Layout.NCHW), repeat=3))  # of the weight, the input and the output's gradient
WHICH = (0, 1)  # of the two algorithms
PLAIN = Case((2, 17, 4, 5), (16, 17, 2, 2), padding=SAME)
# One output pixel for each of the input, so that a gradient meets each of them once.
ALONE = Case((1, 16, 2, 8), (16, 16, 1, 1))


def computed(candidate: Candidate, given: Operands) -> Tensor:
    return given.computed(BACKEND.build(candidate, CPU))


def comes_out_exactly(problem: ConvProblem, *candidates: Candidate) -> None:
    given = Operands.of(problem, "cpu", integers=True)
    expected = given.expected(problem).float()
    for candidate in candidates:
        assert torch.equal(computed(candidate, given), expected), candidate.id


# Each case with one algorithm, one way to lie and some parts, by turns; the other tiles have their turn below.
@pytest.mark.parametrize(("name", "turn"), [(name, turn) for turn, name in enumerate(SERVED)])
def test_small_integers_come_out_exactly(name: str, turn: int) -> None:
    problem = gradient(SERVED[name], DType.FP32, *LAYOUTS[turn % 8])
    comes_out_exactly(problem, least(problem, 1 + turn % 3)[turn // 4 % 2])


# Of each two operands all four ways.
@pytest.mark.parametrize(("turn", "lying"), [*enumerate((0, 3, 5, 6))])
def test_operands_may_lie_either_way(turn: int, lying: int) -> None:
    problem = gradient(SERVED["slice of a wider buffer"], DType.FP32, *LAYOUTS[lying])
    comes_out_exactly(problem, least(problem, 1 + turn // 2)[turn % 2])


@pytest.mark.slow
# 70 channels fill no tile, 70 pixels leave a tail in two steps, and in a part with one of them.
@pytest.mark.parametrize("layout", [Layout.NHWC, Layout.NCHW])
def test_every_tile_handles_its_tails(layout: Layout) -> None:
    problem = gradient(Case((1, 70, 7, 10), (35, 70, 1, 1)), DType.FP32, layout, layout, layout)
    whole, parted = all_tiles(problem, 1), all_tiles(problem, 2)
    every = [parted[place] if place % 4 > 1 else each for place, each in enumerate(whole)]
    comes_out_exactly(problem, *every[layout is Layout.NCHW :: 2])


# Three steps of 64 pixels: also parts of which the last have none, and more than a program adds at once.
@pytest.mark.parametrize("parts", [2, 3, 33])
def test_parts_add_up(parts: int) -> None:
    problem = gradient(Case((2, 16, 9, 10), (17, 16, 1, 1)), DType.FP32)
    comes_out_exactly(problem, least(problem, parts)[parts % 2])


# Many sums, of which a program lays some channels with all their taps, and so many parts that they are read in turns.
@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("ic512oc16ih4kh3ph1", 1),
        ("ic500oc16ih4kh3kw5ph1pw2", 11),
        ("ic300oc9id3ih3kd3kh3pd1ph1", 2),
        ("ic512oc16ih4kh3ph1 tag:nhwc", 9),
        ("ic512oc130ih4kh1", 3),
    ],
)
@pytest.mark.parametrize("flip", [False, True])
def test_many_sums_are_laid_where_they_belong(text: str, parts: int, flip: bool) -> None:
    problem = replace(ConvProblem.parse(f"{text} dir:backward_weight"), flip=flip)
    outputs, inputs, *taps = problem.w.shape
    assert is_turned(problem, parts) == (parts not in (9, 3))
    sums = torch.randint(-8, 8, (parts, outputs, *taps, inputs), generator=torch.Generator().manual_seed(parts)).float()
    dw = torch.empty_strided(problem.w.shape, problem.w.strides).fill_(nan)
    sum_call(problem, parts).interpreted(sums, dw)
    expected = sums.sum(0).movedim(-1, 1)
    assert torch.equal(dw, expected.flip([*range(2, expected.dim())]) if flip else expected)


@pytest.mark.first_cases(1)
@pytest.mark.parametrize("which", WHICH)
def test_many_sums_of_one_part_are_laid_by_another_kernel(which: int) -> None:
    """By the product each would be written into a line of its own."""
    problem = gradient(Case((1, 480, 2, 3), (16, 480, 3, 3), padding=SAME), DType.FP32, Layout.NCHW)
    candidate = least(problem)[which]
    assert len(kernel_calls(candidate)) == 4
    comes_out_exactly(problem, candidate)


@pytest.mark.parametrize(
    ("name", "parts"),
    [("flipped", 1), ("1-D", 2), ("any window of a volume", 1), ("groups in 1-D, flipped", 2)],
)
def test_the_gradient_is_written_wherever_the_weight_lies(name: str, parts: int) -> None:
    """A slice of a larger one in every dimension, of which nothing else is written to."""
    problem = with_gaps(gradient(SERVED[name], DType.FP32))
    given = operands(problem, seed=1)
    plan = BACKEND.build(least(problem, parts)[parts % 2], CPU)
    torch.testing.assert_close(run(plan, given).double(), oracle(problem, given), rtol=0, atol=0)


SMALL = problems(least_images=1, channels=(15, 16, 19), most_room=2, most_groups=2)


@settings(max_examples=4)
@drawn(SMALL, st.integers(1, 3), st.sampled_from(WHICH))
def test_any_problem_that_is_served(drawn_problem: ConvProblem, parts: int, which: int) -> None:
    problem = drawn_problem.asking(Direction.BACKWARD_WEIGHT)
    if refusal_reason(problem) is not None:
        assert all(isinstance(offer, Refusal) for offer in listed(ALGORITHM, problem, CPU))
        return
    given = operands(problem, seed=2)
    candidate = least(problem, parts)[which]
    y = run(BACKEND.build(candidate, CPU), given)
    torch.testing.assert_close(y.double(), oracle(problem, given), rtol=0, atol=0, msg=candidate.id)


# What it errs.


@pytest.mark.parametrize("parts", [1, 3])
def test_a_long_sum_errs_as_its_arithmetic_does(parts: int) -> None:
    """Three products as little as fp32; one as much as numbers of 11 bits do, that are rounded and not cut."""
    problem = gradient(Case((1, 16, 20, 30), (16, 16, 1, 1)), DType.FP32)
    given = Operands.of(problem, "cpu", integers=False)
    expected = given.expected(problem)
    for candidate in least(problem, parts):
        error = float((computed(candidate, given).double() - expected).norm() / expected.norm())
        assert error < LARGEST_ERROR[candidate.arithmetic], f"{candidate.id}: {error:.2e}"
        if candidate.arithmetic is Arithmetic.SCALED_FP16:
            assert 2e-4 < error < 4e-4, f"{candidate.id}: {error:.2e}"


@pytest.mark.parametrize(("pixels", "largest"), [(16, 2.0**-23), (32, 2.0**-23), (33, 2.0**-22)])
def test_a_short_sum_leaves_nothing_out(pixels: int, largest: float) -> None:
    """Three products leave out up to 2^-22 of each, here of the same sign: more than fp32 errs in a sum of few."""
    problem = gradient(Case((1, 16, 1, pixels), (16, 16, 1, 1)), DType.FP32)
    given = Operands.of(problem, "cpu", integers=False)
    for operand in (given.x, given.dy):
        operand.fill_(1 + 2.0**-11 - 2.0**-20)
    split, _ = least(problem)
    expected = given.expected(problem)
    assert (computed(split, given).double() / expected - 1).abs().max() <= largest


@pytest.mark.filterwarnings("ignore:invalid value encountered", "ignore:overflow encountered")
@pytest.mark.parametrize("which", WHICH)
def test_errors_on_every_kind_of_data_are_explained(which: int) -> None:
    """Infinities and NaNs among them."""
    problem = gradient(Case((2, 16, 4, 3), (17, 16, 2, 1), padding=((1, 0), (0, 0))), DType.FP32, x=Layout.NCHW)
    plan = BACKEND.build(least(problem, 1 + which)[which], CPU)
    errors = ErrorCheck(problem, "cpu").errors(lambda by_role: plan(by_role["x"], by_role["dy"]))
    assert absolute_objection(problem, plan.candidate.arithmetic, errors, Policy()) is None


@pytest.mark.parametrize("which", WHICH)
@pytest.mark.parametrize("operand", ["x", "dy"])
def test_a_channel_is_as_precise_beside_others_of_any_magnitude(operand: str, which: int) -> None:
    problem = gradient(Case((2, 18, 4, 5), (18, 18, 2, 1), padding=((1, 0), (0, 1))), DType.FP32)
    given = Operands.of(problem, "cpu", integers=False)
    of_one_sign(given.x, given.dy)
    getattr(given, operand).mul_(torch.tensor([1e-20, 1e10, 1.0]).repeat(6).view(1, -1, 1, 1))
    candidate = least(problem, 2)[which]
    assert each_is_near(computed(candidate, given), given.expected(problem), candidate.arithmetic), candidate.id


@pytest.mark.parametrize(("operand", "rows", "which"), [("x", [18, 19], 0), ("dy", [10, 11], 1)])
def test_the_largest_number_is_found_among_all_pixels(operand: str, rows: list[int], which: int) -> None:
    """Of 600 pixels, where programs look at 128 of them each; beside a smaller one it would overflow."""
    problem = gradient(Case((1, 16, 20, 30), (16, 16, 1, 1)), DType.FP32, x=Layout.NCHW)
    assert staged_input(problem, SPLIT).chunks == staged_gradient(problem, SPLIT).chunks == 5
    given = Operands.of(problem, "cpu", integers=True)
    getattr(given, operand)[:, :, rows] *= 2.0**12
    assert torch.equal(computed(least(problem)[which], given), given.expected(problem).float())


@pytest.mark.parametrize("which", WHICH)
@pytest.mark.parametrize(("large", "small"), [("x", "dy"), ("dy", "x")])
def test_numbers_at_the_end_of_the_range_have_results_within_it(large: str, small: str, which: int) -> None:
    problem = gradient(ALONE, DType.FP32)
    given = Operands.of(problem, "cpu", integers=False)
    of_one_sign(given.x, given.dy)
    getattr(given, large).mul_(5e37)
    getattr(given, small).mul_(1e-36)
    candidate = least(problem)[which]
    assert each_is_near(computed(candidate, given), given.expected(problem), candidate.arithmetic), candidate.id


@pytest.mark.parametrize("place", ["x", "dy"])
def test_numbers_below_full_precision_are_summed_as_they_are(place: str) -> None:
    problem = gradient(ALONE, DType.FP32)
    given = Operands.of(problem, "cpu", integers=False)
    getattr(given, place).mul_(1e-40)
    split, _ = least(problem)
    y = computed(split, given)
    assert torch.allclose(y.double(), given.expected(problem), rtol=0, atol=2.0**-149), "the least number that there is"
    getattr(given, "dy" if place == "x" else "x").mul_(1e-40)
    assert torch.equal(computed(split, given), torch.zeros_like(y)), "too small for any number"


# What is not finite.


PLACES = list(product(("x", "dy"), NON_FINITE_BITS))


@pytest.mark.filterwarnings("ignore:invalid value encountered")
@pytest.mark.parametrize(("turn", "place", "bits"), [(i, *each) for i, each in enumerate(PLACES)])
def test_what_is_not_finite_lands_where_it_belongs(turn: int, place: str, bits: int) -> None:
    problem = gradient(Case((2, 18, 3, 4), (17, 18, 2, 2)), DType.FP32)
    given = Operands.of(problem, "cpu", integers=False)
    getattr(given, place)[1, 3, 1, 1] = number(bits)
    candidate = least(problem, 1 + turn // 2 % 2)[(turn + turn // 4) % 2]
    assert lies_as_ieee_says(computed(candidate, given), given.expected(problem), candidate.arithmetic), candidate.id


@pytest.mark.filterwarnings("ignore:invalid value encountered")
@pytest.mark.parametrize("which", WHICH)
@pytest.mark.parametrize("infinite", ["x", "dy"])
def test_an_infinity_meets_any_number_as_ieee_says(infinite: str, which: int) -> None:
    """One of each sign in channels of one operand, and by them each of these in a channel of the other."""
    problem = gradient(ALONE, DType.FP32)
    given = Operands.of(problem, "cpu", integers=False)
    other = given.dy if infinite == "x" else given.x
    getattr(given, infinite)[0, :2, 1, 3] = torch.tensor([inf, -inf])
    other[0, : len(BESIDE_AN_INFINITY), 1, 3] = torch.tensor(BESIDE_AN_INFINITY)
    candidate = least(problem)[which]
    assert lies_as_ieee_says(computed(candidate, given), given.expected(problem), candidate.arithmetic), candidate.id


@pytest.mark.filterwarnings("ignore:invalid value encountered")
@pytest.mark.parametrize("parts", [1, 4])
@pytest.mark.parametrize("which", WHICH)
def test_infinities_of_both_signs_make_nan(which: int, parts: int) -> None:
    """In one step of the sum or in two, and in the parts of each."""
    problem = gradient(Case((1, 16, 2, 100), (16, 16, 1, 1)), DType.FP32)
    given = Operands.of(problem, "cpu", integers=True)
    given.dy.fill_(1)
    given.x[0, 2, 0, 0], given.x[0, 2, 1, 99] = inf, -inf
    given.x[0, 3, 0, 0] = given.x[0, 3, 1, 99] = -inf
    dw = computed(least(problem, parts)[which], given)
    assert dw[:, 2].isnan().all()
    assert dw[:, 3].eq(-inf).all()
    assert dw[:, [0, 1, *range(4, 16)]].isfinite().all()


@pytest.mark.filterwarnings("ignore:invalid value encountered", "ignore:overflow encountered")
@pytest.mark.parametrize("which", WHICH)
@pytest.mark.parametrize(("others", "beside"), [(0.0, 1e-4), (1e-30, 1e-20), (1e30, 1e5)])
def test_an_infinity_among_numbers_of_any_magnitude_stays_one(others: float, beside: float, which: int) -> None:
    """Powers of two of both operands multiplied may be less than any number."""
    problem = gradient(ALONE, DType.FP32)
    given = Operands.of(problem, "cpu", integers=False)
    of_one_sign(given.x, given.dy)
    given.x[:, 3].mul_(others)
    given.dy.mul_(beside)
    given.x[0, 3, 1, 2] = -inf
    dw = computed(least(problem)[which], given)
    assert dw[:, 3].eq(-inf).all()
    assert dw[:, :3].isfinite().all()


@pytest.mark.filterwarnings("ignore:invalid value encountered", "ignore:overflow encountered")
@pytest.mark.parametrize("which", WHICH)
def test_large_numbers_that_do_not_meet_sum_to_nothing(which: int) -> None:
    """Powers of two of both operands multiplied may be more than any number."""
    problem = gradient(ALONE, DType.FP32)
    given = Operands.of(problem, "cpu", integers=False)
    given.x.zero_()
    given.dy.zero_()
    given.x[0, 3, 0, 0], given.dy[0, 4, 1, 1] = 1e30, 1e30
    dw = computed(least(problem)[which], given)
    assert torch.equal(dw, torch.zeros_like(dw))


# Calls.


@pytest.mark.parametrize("parts", [1, 2])
def test_output_and_workspace_are_made_where_none_are_given(parts: int) -> None:
    problem = gradient(PLAIN, DType.FP32, Layout.NCHW)
    given = Operands.of(problem, "cpu", integers=True)
    dw = BACKEND.build(least(problem, parts)[parts % 2], CPU)(given.x, given.dy)
    assert dw.stride() == problem.w.strides
    assert torch.equal(dw, given.expected(problem).float())


def test_operands_that_it_does_not_take_are_named() -> None:
    problem = gradient(PLAIN, DType.FP32)
    given = Operands.of(problem, "cpu", integers=True)
    plan = BACKEND.build(least(problem)[0], CPU)
    with pytest.raises(BadInput, match=r"needs the operands of the epilogue none, got bias$"):
        plan(given.x, given.dy, given.x)
    with pytest.raises(BadInput, match=r"needs the operands of the epilogue none, got residual$"):
        plan(given.x, given.dy, residual=given.x)


def test_only_fp32_is_served() -> None:
    offers = listed(ALGORITHM, gradient(PLAIN, DType.FP16), CPU)
    assert [offer.id for offer in offers] == [f"triton/{name}" for name in NAMES]
    assert all(isinstance(offer, Refusal) and "computes only fp32, got fp16" in offer.reason for offer in offers)
