"""Products on folded rows of taps in Triton's interpreter. Its own process runs this, as for the implicit GEMM."""

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

from backends.triton_interpreted.cases import Case, Operands, exact, listed, oracle
from backends.triton_interpreted.folded_gemm_cases import ALGORITHM, SAME, SERVED, every_tile, least
from backends.triton_interpreted.fp16_parts_cases import (
    BESIDE_AN_INFINITY,
    LARGEST_ERROR,
    NON_FINITE_BITS,
    each_is_near,
    lies_as_ieee_says,
    number,
    of_one_sign,
)
from convwright.backends.triton.backend import TritonKernels
from convwright.backends.triton.folded_gemm.offers import Folding, algorithm_of, algorithms_of, refusal_reason
from convwright.core.candidate import Candidate, Refusal
from convwright.core.direction import Role
from convwright.core.dtype import Arithmetic, DType
from convwright.core.epilogue import Activation, Epilogue
from convwright.core.error_rule import absolute_objection
from convwright.core.policy import Policy
from convwright.core.problem import ConvProblem
from convwright.core.tensor_spec import Layout, TensorSpec
from convwright.errors import BadInput
from convwright.measuring.checking.error import ErrorCheck
from convwright.measuring.hardware.machine import device_facts
from problem_space import operands, specs
from problem_space import oracle as oracle_by_role
from problem_space import run as run_by_role

BACKEND, CPU = TritonKernels(), device_facts("cpu")
LAYOUTS = list(product((Layout.NHWC, Layout.NCHW), repeat=2))
# The three algorithms that the interpreter can run, by either kernel, as `least` lists them.
WAYS = [(DType.FP32, 0), (DType.FP32, 1), (DType.FP16, 0), (DType.FP32, 2), (DType.FP32, 3), (DType.FP16, 1)]
WHICH = (0, 1, 2, 3)  # of those for fp32
PLAIN = Case((2, 3, 4, 6), (9, 3, 3, 3), padding=SAME)


def run(candidate: Candidate, given: Operands) -> Tensor:
    return given.computed(BACKEND.build(candidate, CPU))


def comes_out_exactly(candidate: Candidate) -> None:
    problem = candidate.problem
    given = Operands.of(problem, "cpu", integers=True)
    assert torch.equal(run(candidate, given), exact(oracle(problem, given), problem)), candidate.id


# Each case with one algorithm and one way to lie, by turns; the other tiles have their turn below.
@pytest.mark.parametrize(("name", "turn"), [(name, turn) for turn, name in enumerate(SERVED)])
def test_small_integers_come_out_exactly(name: str, turn: int) -> None:
    dtype, which = WAYS[turn % len(WAYS)]
    comes_out_exactly(least(SERVED[name].problem(dtype, *LAYOUTS[turn % 4]))[which])


@pytest.mark.parametrize("turn", range(4))
def test_operands_may_lie_either_way(turn: int) -> None:
    dtype, which = WAYS[turn % len(WAYS)]
    comes_out_exactly(least(SERVED["slice of a wider buffer"].problem(dtype, *LAYOUTS[turn % 4]))[which])


# 117 pixels and 19 outputs leave a tail in each tile.
@pytest.mark.parametrize("place", range(18))
def test_every_tile_handles_its_tails(place: int) -> None:
    """With one algorithm, by turns."""
    dtype, which = WAYS[place % 3]
    case = Case((1, 3, 9, 14), (19, 3, 2, 2), padding=((1, 0), (0, 0)), epilogue="residual+bias+relu")
    problem = case.problem(dtype, *LAYOUTS[place % 4])
    name = algorithms_of(dtype)[which].name
    comes_out_exactly([each for each in every_tile(problem) if each.algorithm == name][place])


@pytest.mark.parametrize(("dtype", "which"), WAYS)
def test_the_epilogue_follows_the_whole_sum(dtype: DType, which: int) -> None:
    problem = Case((2, 3, 4, 5), (9, 3, 2, 2), epilogue="residual+bias+hardswish").problem(dtype)
    given = Operands.of(problem, "cpu", integers=True)
    candidate = least(problem)[which]
    error = 2 * dtype.roundoff
    assert torch.allclose(run(candidate, given).double(), oracle(problem, given), rtol=error, atol=0), candidate.id


@st.composite
def windows(draw: st.DrawFn) -> ConvProblem:
    """Of 2 or 3 taps in a row, on operands with gaps or without."""
    dtype, rank = draw(st.sampled_from([DType.FP32, DType.FP16])), draw(st.integers(1, 3))
    taps = (*(draw(st.integers(1, 3)) for _ in range(rank - 1)), draw(st.integers(2, 3)))
    dilation = (*(draw(st.integers(1, 2)) for _ in range(rank - 1)), 1)
    padding = tuple((draw(st.integers(0, 2)), draw(st.integers(0, 2))) for _ in range(rank))
    least_sizes = [max(1, (r - 1) * d + 1 - sum(p)) for r, d, p in zip(taps, dilation, padding, strict=True)]
    x = (draw(st.integers(1, 2)), draw(st.integers(1, 9)), *(size + draw(st.integers(0, 3)) for size in least_sizes))
    problem = ConvProblem.of_specs(
        draw(specs(x, dtype)), draw(specs((draw(st.integers(7, 9)), x[1], *taps), dtype)),
        stride=tuple(draw(st.integers(1, 3)) for _ in range(rank)), padding=padding, dilation=dilation,
        flip=draw(st.booleans()),
        epilogue=Epilogue(draw(st.booleans()), draw(st.booleans()), draw(st.sampled_from([*Activation][:2]))),
    )  # fmt: skip
    return replace(problem, y=draw(specs(problem.y.shape, dtype)))


@settings(max_examples=4)
@drawn(windows(), st.data())
def test_any_problem_that_is_served(problem: ConvProblem, data: st.DataObject) -> None:
    if refusal_reason(problem) is not None:
        assert all(isinstance(offer, Refusal) for offer in listed(ALGORITHM, problem, CPU))
        return
    given = operands(problem, seed=2)
    candidate = data.draw(st.sampled_from(least(problem)))
    y = run_by_role(BACKEND.build(candidate, CPU), given)
    torch.testing.assert_close(y.double(), oracle_by_role(problem, given), rtol=0, atol=0, msg=candidate.id)


# What it errs.


@pytest.mark.parametrize(("dtype", "which"), WAYS)
def test_a_sum_errs_as_its_arithmetic_does(dtype: DType, which: int) -> None:
    """Three products as little as fp32; one as much as numbers of 11 bits do, that are rounded and not cut."""
    problem = Case((1, 3, 12, 13), (16, 3, 7, 7), padding=((3, 3), (3, 3))).problem(dtype)
    given = Operands.of(problem, "cpu", integers=False)
    candidate, expected = least(problem)[which], oracle(problem, given)
    error = float((run(candidate, given).double() - expected).norm() / expected.norm())
    assert error < LARGEST_ERROR[candidate.arithmetic], f"{candidate.id}: {error:.2e}"
    if candidate.arithmetic is Arithmetic.SCALED_FP16:
        assert 2e-4 < error < 4e-4, f"{candidate.id}: {error:.2e}"


@pytest.mark.parametrize(("channels", "taps", "largest"), [(8, 2, 2.0**-23), (8, 4, 2.0**-23), (7, 5, 1.25 * 2.0**-22)])
def test_a_short_sum_leaves_nothing_out(channels: int, taps: int, largest: float) -> None:
    """Three products leave out up to 2^-22 of each, here of the same sign: more than fp32 errs in a sum of few."""
    problem = Case((1, channels, 2, 7), (8, channels, 1, taps)).problem(DType.FP32)
    given = Operands.of(problem, "cpu", integers=False)
    for operand in (given.x, given.w):
        operand.fill_(1 + 2.0**-11 - 2.0**-20)
    assert (run(least(problem)[0], given).double() / oracle(problem, given) - 1).abs().max() <= largest


@pytest.mark.filterwarnings("ignore:invalid value encountered", "ignore:overflow encountered")
@pytest.mark.parametrize(("dtype", "which"), WAYS)
def test_errors_on_every_kind_of_data_are_explained(dtype: DType, which: int) -> None:
    """Infinities and NaNs among them."""
    problem = Case((2, 3, 4, 5), (9, 3, 2, 3), padding=SAME).problem(dtype, Layout.NCHW, Layout.NHWC)
    plan = BACKEND.build(least(problem)[which], CPU)
    errors = ErrorCheck(problem, "cpu").errors(lambda given: plan(given[Role.X], plan.prepare(given[Role.W])))
    assert absolute_objection(problem, plan.candidate.arithmetic, errors, Policy()) is None


@pytest.mark.parametrize("which", WHICH)
def test_an_output_channel_is_as_precise_beside_others_of_any_magnitude(which: int) -> None:
    problem = PLAIN.problem(DType.FP32)
    given = Operands.of(problem, "cpu", integers=False)
    of_one_sign(given.x, given.w)
    given.w.mul_(torch.tensor([1e-20, 1e10, 1.0]).repeat(3).view(-1, 1, 1, 1))
    candidate = least(problem)[which]
    assert each_is_near(run(candidate, given), oracle(problem, given), candidate.arithmetic), candidate.id


@pytest.mark.parametrize("which", WHICH)
def test_a_row_is_as_precise_beside_others_of_any_magnitude(which: int) -> None:
    """Taps of one row, so that each output is the sum of products of one magnitude."""
    problem = Case((2, 3, 6, 7), (9, 3, 1, 3), padding=((0, 0), (1, 1))).problem(DType.FP32)
    given = Operands.of(problem, "cpu", integers=False)
    of_one_sign(given.x, given.w)
    given.x.mul_(torch.tensor([1e-30, 1e-30, 1e30]).repeat(2).view(-1, 1))
    candidate = least(problem)[which]
    assert each_is_near(run(candidate, given), oracle(problem, given), candidate.arithmetic), candidate.id


@pytest.mark.parametrize("which", WHICH)
@pytest.mark.parametrize(("large", "small"), [("x", "w"), ("w", "x")])
def test_numbers_at_the_end_of_the_range_have_results_within_it(large: str, small: str, which: int) -> None:
    problem = PLAIN.problem(DType.FP32)
    given = Operands.of(problem, "cpu", integers=False)
    of_one_sign(given.x, given.w)
    getattr(given, large).mul_(5e37)
    getattr(given, small).mul_(1e-36)
    candidate = least(problem)[which]
    assert each_is_near(run(candidate, given), oracle(problem, given), candidate.arithmetic), candidate.id


@pytest.mark.parametrize("place", ["x", "w"])
def test_numbers_below_full_precision_are_summed_as_they_are(place: str) -> None:
    problem = PLAIN.problem(DType.FP32)
    given = Operands.of(problem, "cpu", integers=False)
    getattr(given, place).mul_(1e-40)
    split, *_ = least(problem)
    # Each of 3 rows of taps is rounded to a multiple of the least number that there is.
    assert torch.allclose(run(split, given).double(), oracle(problem, given), rtol=0, atol=3 * 2.0**-149)
    getattr(given, "w" if place == "x" else "x").mul_(1e-40)
    assert torch.equal(run(split, given), torch.zeros_like(given.out)), "too small for any number"


# What is not finite.


PLACES = list(product(("x", "w"), NON_FINITE_BITS))


@pytest.mark.filterwarnings("ignore:invalid value encountered")
@pytest.mark.parametrize(("turn", "place", "bits"), [(i, *each) for i, each in enumerate(PLACES)])
def test_what_is_not_finite_lands_where_it_belongs(turn: int, place: str, bits: int) -> None:
    dtype, which = WAYS[turn % len(WAYS)]
    problem = Case((2, 3, 4, 7), (10, 3, 3, 3), padding=SAME, epilogue="residual+bias").problem(dtype)
    given = Operands.of(problem, "cpu", integers=False)
    getattr(given, place)[1, 2, 1, 1] = number(bits)
    candidate = least(problem)[which]
    assert lies_as_ieee_says(run(candidate, given), oracle(problem, given), candidate.arithmetic), candidate.id


@pytest.mark.filterwarnings("ignore:invalid value encountered")
@pytest.mark.parametrize(("dtype", "which"), WAYS)
@pytest.mark.parametrize("infinite", ["x", "w"])
def test_an_infinity_meets_any_number_as_ieee_says(infinite: str, dtype: DType, which: int) -> None:
    """By one of each sign each of these in the other operand, which two taps of a row meet."""
    problem = Case((1, 3, 10, 4), (10, 3, 1, 2)).problem(dtype)
    given = Operands.of(problem, "cpu", integers=False)
    beside = torch.tensor(BESIDE_AN_INFINITY)
    if infinite == "x":
        given.x[0, 1, :2, 1] = torch.tensor([inf, -inf])
        given.w[:, 1, 0, 0] = beside
    else:
        given.w[:2, 1, 0, 1] = torch.tensor([inf, -inf])
        given.x[0, 1, :, 1] = beside
    candidate = least(problem)[which]
    assert lies_as_ieee_says(run(candidate, given), oracle(problem, given), candidate.arithmetic), candidate.id


@pytest.mark.filterwarnings("ignore:invalid value encountered")
@pytest.mark.parametrize(
    ("channels", "dtype", "which"), [(1, *WAYS[0]), (3, *WAYS[1]), (8, *WAYS[2]), (3, *WAYS[3]), (3, *WAYS[5])]
)
def test_what_a_step_reads_beside_the_window_is_left_out(channels: int, dtype: DType, which: int) -> None:
    """A step holds a power of two of numbers, more than three taps fill."""
    problem = Case((1, channels, 2, 9), (8, channels, 1, 3)).problem(dtype)
    given = Operands.of(problem, "cpu", integers=True)
    given.x[..., 4] = inf
    given.w[given.w == 0] = 1
    expected = exact(oracle(problem, given), problem)
    assert expected[..., :2].isfinite().all()
    assert expected[..., 5:].isfinite().all()
    y = run(least(problem)[which], given)
    assert torch.equal(y[..., [0, 1, 5, 6]], expected[..., [0, 1, 5, 6]])
    assert not y[..., 2:5].isfinite().any()


@pytest.mark.filterwarnings("ignore:invalid value encountered")
@pytest.mark.parametrize(("dtype", "which"), WAYS)
@pytest.mark.parametrize(("channels", "taps"), [(3, 3), (3, 7), (1, 5)])
def test_what_a_whole_step_reads_behind_the_taps_is_left_out(
    channels: int, taps: int, dtype: DType, which: int
) -> None:
    """Where the windows are two pixels apart a step is read whole, with the pixel behind each window."""
    problem = Case((1, channels, 3, 15), (8, channels, 2, taps), (1, 2)).problem(dtype)
    candidate = least(problem)[which]
    assert Folding.of(problem, algorithm_of(candidate)).whole
    for value in (inf, -inf, nan):
        given = Operands.of(problem, "cpu", integers=True)
        given.w[given.w == 0] = 1
        given.x[..., taps] = value  # behind the first window, and amid the next ones
        expected = exact(oracle(problem, given), problem)
        y = run(candidate, given)
        reached = torch.zeros(y.shape[-1], dtype=torch.bool)
        reached[1 : 1 + taps // 2] = True
        assert torch.equal(y[..., ~reached], expected[..., ~reached])
        assert expected[..., ~reached].isfinite().all()
        assert not y[..., reached].isfinite().any()


@pytest.mark.filterwarnings("ignore:invalid value encountered")
@pytest.mark.parametrize(("dtype", "which"), WAYS)
def test_infinities_of_both_signs_make_nan(dtype: DType, which: int) -> None:
    """In one row of taps or in two."""
    problem = Case((1, 3, 4, 4), (8, 3, 2, 2)).problem(dtype)
    given = Operands.of(problem, "cpu", integers=True)
    given.w.fill_(1)
    given.x[0, 0, 0, 0], given.x[0, 1, 1, 0] = inf, -inf
    given.x[0, 2, 2, 3], given.x[0, 2, 3, 3] = -inf, -inf
    y = run(least(problem)[which], given)
    assert y[..., 0, 0].isnan().all()
    assert y[..., 1:, 2].eq(-inf).all()
    assert y[..., 0, 1:].isfinite().all()


@pytest.mark.filterwarnings("ignore:invalid value encountered", "ignore:overflow encountered")
@pytest.mark.parametrize(("infinite", "turn"), [("x", 0), ("w", 1)])
@pytest.mark.parametrize(("place", "others", "beside"), [(0, 0.0, 1e-4), (1, 1e-30, 1e-20), (2, 1e30, 1e5)])
def test_an_infinity_among_numbers_of_any_magnitude_stays_one(
    place: int, others: float, beside: float, infinite: str, turn: int
) -> None:
    """Powers of two of both operands multiplied may be less than any number."""
    problem = Case((1, 3, 3, 6), (8, 3, 1, 3)).problem(DType.FP32)
    given = Operands.of(problem, "cpu", integers=False)
    of_one_sign(given.x, given.w)
    of_others, of_beside = (given.x, given.w) if infinite == "x" else (given.w, given.x)
    of_others.mul_(others)
    of_beside.mul_(beside)
    of_others[0, 1, 0, 2] = -inf
    y = run(least(problem)[(place + turn) % 4], given)
    met = y[0, :, 0, :3] if infinite == "x" else y[0, 0]
    assert met.eq(-inf).all()
    assert y.isinf().sum() == met.numel()
    assert not y.isnan().any()


@pytest.mark.filterwarnings("ignore:invalid value encountered", "ignore:overflow encountered")
@pytest.mark.parametrize("which", WHICH)
def test_large_numbers_that_do_not_meet_sum_to_nothing(which: int) -> None:
    """Powers of two of both operands multiplied may be more than any number."""
    problem = Case((1, 3, 3, 6), (8, 3, 1, 3)).problem(DType.FP32)
    given = Operands.of(problem, "cpu", integers=False)
    given.x.zero_()
    given.w.zero_()
    given.x[0, 0, 1, 1], given.w[2, 1, 0, 1] = 1e30, 1e30
    assert torch.equal(run(least(problem)[which], given), torch.zeros_like(given.out))


# Calls.


def test_a_weight_may_lie_in_any_order() -> None:
    problem = SERVED["flipped"].problem(DType.FP32)
    given = Operands.of(problem, "cpu", integers=True)
    lying = given.w.permute(2, 0, 3, 1).contiguous().permute(1, 3, 0, 2)
    turned = replace(problem, w=TensorSpec(problem.w.shape, DType.FP32, lying.stride()))
    y = run(least(turned)[0], replace(given, w=lying))
    assert torch.equal(y, exact(oracle(problem, given), problem))


@pytest.mark.parametrize(("dtype", "which"), WAYS)
def test_output_and_workspace_are_made_where_none_are_given(dtype: DType, which: int) -> None:
    problem = SERVED["slice of a wider buffer"].problem(dtype, Layout.NHWC, Layout.NCHW)
    given = Operands.of(problem, "cpu", integers=True)
    plan = BACKEND.build(least(problem)[which], CPU)
    y = plan(given.x, plan.prepare(given.w), given.bias, given.residual)
    assert y.stride() == problem.y.strides
    assert torch.equal(y, exact(oracle(problem, given), problem))


def test_operands_that_do_not_fit_the_epilogue_are_named() -> None:
    problem = replace(PLAIN, epilogue="bias+relu").problem(DType.FP32)
    given = Operands.of(problem, "cpu", integers=True)
    plan = BACKEND.build(least(problem)[0], CPU)
    with pytest.raises(BadInput, match=r"bias\+relu, got neither bias nor residual"):
        plan(given.x, plan.prepare(given.w))
    with pytest.raises(BadInput, match="got bias and residual"):
        plan(given.x, plan.prepare(given.w), given.bias, given.out)


def test_the_interpreter_is_not_asked_for_bf16() -> None:
    (offer,) = listed(ALGORITHM, PLAIN.problem(DType.BF16), CPU)
    assert isinstance(offer, Refusal)
    assert "bf16" in offer.reason
