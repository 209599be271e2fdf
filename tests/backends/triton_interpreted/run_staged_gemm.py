"""Products on a staged input in Triton's interpreter. Its own process runs this, as it does for the implicit GEMM."""

from __future__ import annotations

from dataclasses import replace
from itertools import cycle, product
from math import inf, nan, prod

import pytest
import torch
from hypothesis import given as drawn
from hypothesis import settings
from hypothesis import strategies as st
from torch import Tensor
from torch.nn import functional as F

pytest.importorskip("triton")

from backends.triton_interpreted.cases import Case, Operands, exact, listed, oracle
from backends.triton_interpreted.staged_gemm_cases import (
    ALGORITHM,
    BETWEEN_SCALES,
    SAME,
    SERVED,
    every_tile,
    in_parts,
    smallest,
    uneven_integers,
)
from convwright.backends.triton.backend import TritonKernels
from convwright.backends.triton.gemm.tiles import Tile
from convwright.backends.triton.implicit_gemm import offers as implicit_gemm_offers
from convwright.backends.triton.staged_gemm.offers import SPLIT, Staging, refusal_reason
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
from problem_space import operands, problems
from problem_space import oracle as oracle_by_role
from problem_space import run as run_by_role

BACKEND, CPU = TritonKernels(), device_facts("cpu")
LAYOUTS = list(product((Layout.NHWC, Layout.NCHW), repeat=2))
LARGEST_ERROR = 4e-7
# One row of pixels, so that an output meets one of them alone.
ALONE = Case((1, 40, 1, 8), (9, 40, 1, 1))


def run(candidate: Candidate, given: Operands) -> Tensor:
    return given.computed(BACKEND.build(candidate, CPU))


def comes_out_exactly(problem: ConvProblem, *candidates: Candidate) -> None:
    given = uneven_integers(problem, "cpu")
    expected = exact(oracle(problem, given), problem)
    packed: dict[int, Tensor] = {}  # which takes the interpreter as long as the rest
    for candidate in candidates:
        plan, block = BACKEND.build(candidate, CPU), Tile.of(candidate).bk
        packed[block] = packed[block] if block in packed else plan.prepare(given.w)
        workspace = torch.full((plan.workspace_bytes,), 0xFF, dtype=torch.uint8)
        given.out.fill_(nan)
        y = plan(given.x, packed[block], given.bias, given.residual, given.out, workspace)
        assert torch.equal(y, expected), candidate.id


# Each case with one length of a step and one way to lie, by turns; the other tiles have their turn below.
@pytest.mark.parametrize(("name", "turn"), [(name, turn) for turn, name in enumerate(SERVED)])
def test_small_integers_come_out_exactly(name: str, turn: int) -> None:
    problem = SERVED[name].problem(DType.FP32, *LAYOUTS[turn % 4])
    comes_out_exactly(problem, smallest(problem)[turn // 4 % 2])


@pytest.mark.parametrize("turn", range(4))
def test_operands_may_lie_either_way(turn: int) -> None:
    problem = SERVED["slice of a wider buffer"].problem(DType.FP32, *LAYOUTS[turn])
    comes_out_exactly(problem, smallest(problem)[turn % 2])


@pytest.mark.slow
# 70 channels leave a tail in the sum, 80 pixels and 20 outputs some in the tile.
@pytest.mark.parametrize("layout", [Layout.NHWC, Layout.NCHW])
def test_every_tile_handles_its_tails_whole_or_in_parts(layout: Layout) -> None:
    case = Case((1, 70, 9, 10), (20, 70, 2, 1), epilogue="residual+bias+relu")
    problem = case.problem(DType.FP32, layout, layout)
    every = every_tile(problem)[layout is Layout.NCHW :: 2]
    comes_out_exactly(problem, *(in_parts(each, parts) for each, parts in zip(every, cycle((1, 3, 2)), strict=False)))


# 18 steps: 4 parts leave the last one 3 of 5, 7 leave the last one none, and 20 have more than there are.
@pytest.mark.parametrize("parts", [4, 7, 20])
def test_parts_of_a_sum_add_up(parts: int) -> None:
    case = Case((1, 40, 3, 4), (9, 40, 3, 3), padding=SAME, epilogue="residual+bias+relu")
    problem = case.problem(DType.FP32, *LAYOUTS[parts % 4])
    comes_out_exactly(problem, in_parts(smallest(problem)[0], parts))


@pytest.mark.first_cases(1)
@pytest.mark.parametrize("layout", [Layout.NHWC, Layout.NCHW])
def test_parts_of_many_outputs_add_up(layout: Layout, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(implicit_gemm_offers, "_MANY_OUTPUTS", 1)
    problem = Case((2, 40, 5, 7), (130, 40, 1, 2), epilogue="residual+bias+relu").problem(DType.FP32, layout, layout)
    comes_out_exactly(problem, in_parts(smallest(problem)[0], 3))


@pytest.mark.parametrize(("name", "parts"), [("groups in 1-D, flipped", 2), ("groups of a volume", 5), ("1-D", 3)])
def test_parts_of_any_problem_add_up(name: str, parts: int) -> None:
    problem = SERVED[name].problem(DType.FP32)
    comes_out_exactly(problem, in_parts(smallest(problem)[0], parts))


@pytest.mark.parametrize("parts", [1, 2])
def test_the_epilogue_follows_the_whole_sum(parts: int) -> None:
    problem = Case((2, 20, 3, 4), (9, 20, 2, 2), epilogue="residual+bias+hardswish").problem(DType.FP32)
    given = Operands.of(problem, "cpu", integers=True)
    y = run(in_parts(smallest(problem)[0], parts), given)
    assert torch.allclose(y.double(), oracle(problem, given), rtol=2e-7, atol=0)


SMALL = problems(least_images=1, channels=(15, 16, 19), most_room=2, most_groups=2)


@settings(max_examples=5)
@drawn(SMALL, st.sampled_from([1, 2, 5]), st.integers(0, 1))
def test_any_problem_that_is_served(drawn_problem: ConvProblem, parts: int, which: int) -> None:
    problem = drawn_problem.asking(Direction.FORWARD)
    if refusal_reason(problem) is not None:
        assert all(isinstance(offer, Refusal) for offer in listed(ALGORITHM, problem, CPU))
        return
    given = operands(problem, seed=2)
    candidate = in_parts(smallest(problem)[which], parts)
    y = run_by_role(BACKEND.build(candidate, CPU), given)
    torch.testing.assert_close(y.double(), oracle_by_role(problem, given), rtol=0, atol=0, msg=candidate.id)


def test_gradients_of_inputs_come_out_exactly_inside_a_rewrite() -> None:
    problem = ConvProblem.parse("g2mb1ic18ih4iw5oc34kh3ph1 dir:backward_data")
    forward = rewrite("as-forward").inner(problem, ())
    assert refusal_reason(forward) is None
    given = operands(problem, seed=3)
    expected = oracle_by_role(problem, given)
    for leaf in smallest(forward):
        candidate = rewrite("as-forward").wrap(problem, (), leaf)
        plan = wrap_plan(candidate, lambda each: BACKEND.build(each, CPU))
        assert torch.equal(run_by_role(plan, given).double(), expected), candidate.id


# What it errs.


def scaled_error(y: Tensor, problem: ConvProblem, given: Operands) -> float:
    """The largest error of an output, as a share of the sum of its products without their signs."""
    plain = replace(problem, epilogue=replace(problem.epilogue, bias=False, residual=False))
    unsigned = oracle(plain, replace(given, x=given.x.abs(), w=given.w.abs(), bias=None, residual=None))
    return float(((y.double() - oracle(problem, given)).abs() / unsigned).max())


@pytest.mark.parametrize("parts", [1, 3])
def test_three_products_of_fp16_parts_are_as_good_as_fp32(parts: int) -> None:
    problem = Case((1, 128, 4, 5), (8, 128, 3, 3), padding=SAME).problem(DType.FP32)
    given = Operands.of(problem, "cpu", integers=False)
    expected = oracle(problem, given)
    for candidate in smallest(problem):
        parted = in_parts(candidate, parts)
        error = (run(parted, given).double() - expected).norm() / expected.norm()
        assert error < LARGEST_ERROR, f"{parted.id}: {error:.2e}"


@pytest.mark.parametrize(("products", "largest"), [(16, 2.0**-23), (32, 2.0**-23), (33, 2.0**-22)])
def test_a_short_sum_leaves_nothing_out(products: int, largest: float) -> None:
    """Three products leave out up to 2^-22 of each, here of the same sign: more than fp32 errs in a sum of few."""
    problem = Case((1, products, 2, 3), (8, products, 1, 1)).problem(DType.FP32)
    given = Operands.of(problem, "cpu", integers=False)
    for operand in (given.x, given.w):
        operand.fill_(1 + 2.0**-11 - 2.0**-20)
    for candidate in smallest(problem):
        assert scaled_error(run(candidate, given), problem, given) <= largest, candidate.id


@pytest.mark.filterwarnings("ignore:invalid value encountered", "ignore:overflow encountered")
def test_errors_on_every_kind_of_data_are_explained() -> None:
    """Infinities and NaNs among them."""
    problem = Case((2, 24, 4, 3), (8, 24, 3, 3), padding=SAME).problem(DType.FP32, Layout.NCHW, Layout.NHWC)
    plan = BACKEND.build(smallest(problem)[0], CPU)
    errors = ErrorCheck(problem, "cpu").errors(lambda given: plan(given[Role.X], plan.prepare(given[Role.W])))
    assert absolute_objection(problem, plan.candidate.arithmetic, errors, Policy()) is None


def test_channels_of_far_magnitudes_that_the_weight_undoes_are_as_good_as_fp32() -> None:
    """They share a power of two, beside which the least have as many bits as the largest."""
    problem = Case((1, 64, 3, 4), (8, 64, 3, 3), padding=SAME).problem(DType.FP32)
    given = Operands.of(problem, "cpu", integers=False)
    magnitudes = torch.logspace(-3, 3, 64)[torch.randperm(64)].view(1, -1, 1, 1)
    given.x.mul_(magnitudes)
    given.w.div_(magnitudes)
    candidate = smallest(problem)[1]
    assert scaled_error(run(candidate, given), problem, given) < LARGEST_ERROR, candidate.id


def alike(y: Tensor, expected: Tensor) -> bool:
    """To within a few roundoffs each, where fp32 has its full precision."""
    normal = (expected.abs() > 1e-37) & (expected.abs() < 3e38)
    assert normal.any()
    return bool(((y.double() - expected).abs() <= LARGEST_ERROR * expected.abs())[normal].all())


def positive(case: Case) -> tuple[ConvProblem, Operands]:
    """Numbers of one magnitude and one sign, so that each sum has full precision."""
    problem = case.problem(DType.FP32)
    given = Operands.of(problem, "cpu", integers=False)
    for operand in (given.x, given.w):
        operand.abs_().add_(0.25)
    return problem, given


def test_an_output_channel_is_as_precise_beside_others_of_any_magnitude() -> None:
    problem, given = positive(Case((1, 40, 4, 5), (9, 40, 3, 3), padding=SAME))
    given.w.mul_(torch.tensor([1e-20, 1e10, 1.0]).repeat(3).view(-1, 1, 1, 1))
    assert alike(run(smallest(problem)[0], given), oracle(problem, given))


@pytest.mark.parametrize("case", [ALONE, Case((1, 40, 3, 8), (9, 40, 3, 3), padding=SAME)], ids=["1x1", "3x3"])
def test_a_pixel_is_as_precise_beside_others_of_any_magnitude(case: Case) -> None:
    problem, given = positive(case)
    given.x.mul_(torch.tensor([1e-30, 1e-30, 1e30, 1.0]).repeat(2))
    assert alike(run(smallest(problem)[case is ALONE], given), oracle(problem, given))


@pytest.mark.parametrize(("large", "small"), [("x", "w"), ("w", "x")])
def test_numbers_at_the_end_of_the_range_have_results_within_it(large: str, small: str) -> None:
    problem, given = positive(Case((1, 40, 3, 3), (9, 40, 3, 3), padding=SAME))
    getattr(given, large).mul_(5e37)
    getattr(given, small).mul_(1e-36)
    assert alike(run(smallest(problem)[large == "x"], given), oracle(problem, given))


@pytest.mark.parametrize("place", ["x", "w"])
def test_numbers_below_full_precision_are_summed_as_they_are(place: str) -> None:
    problem = Case((1, 40, 3, 3), (9, 40, 3, 3), padding=SAME).problem(DType.FP32)
    given = Operands.of(problem, "cpu", integers=False)
    getattr(given, place).mul_(1e-40)
    candidate = smallest(problem)[0]
    # Each of 18 steps is rounded to a multiple of the least number that there is.
    assert torch.allclose(run(candidate, given).double(), oracle(problem, given), rtol=0, atol=18 * 2.0**-149)
    getattr(given, "w" if place == "x" else "x").mul_(1e-40)
    assert torch.equal(run(candidate, given), torch.zeros_like(given.out)), "too small for any number"


# What is not finite.


@pytest.mark.filterwarnings("ignore:invalid value encountered")
@pytest.mark.parametrize(
    ("place", "bits", "parts"),
    [
        ("x", 0x7F800000, 1), ("w", 0xFF800000, 1), ("x", 0xFF800000, 3), ("w", 0x7FC00000, 3), ("x", 0x7FFFFFFF, 3),
        ("w", 0x7FFFFFFF, 1),
    ],
)  # fmt: skip
def test_what_is_not_finite_lands_where_it_belongs(place: str, bits: int, parts: int) -> None:
    """An infinity of each sign, PyTorch's NaN and CUDA's, which rounding on the bits would turn into a zero."""
    problem = Case((1, 24, 3, 5), (10, 24, 3, 3), padding=SAME, epilogue="residual+bias").problem(DType.FP32)
    given = Operands.of(problem, "cpu", integers=False)
    getattr(given, place)[0, 3, 1, 1] = torch.tensor(bits, dtype=torch.uint32).view(torch.float32)
    expected = oracle(problem, given).float()
    assert expected.isfinite().any()
    assert not expected.isfinite().all()
    candidate = in_parts(smallest(problem)[parts > 1], parts)
    assert torch.allclose(run(candidate, given), expected, rtol=1e-5, atol=1e-5, equal_nan=True), candidate.id


# Beside an infinity a number so small that fp16 has none like it is still no 0.
BESIDE = torch.tensor([1e-30, -1e-30, 1e-44, 0.0, -0.0, 3.0, inf, -inf, nan, 1.0])


@pytest.mark.filterwarnings("ignore:invalid value encountered")
@pytest.mark.parametrize("infinite", ["x", "w"])
def test_an_infinity_meets_any_number_as_ieee_says(infinite: str) -> None:
    """Of each sign, in one of the operands by each of these in the other."""
    problem = Case((1, 40, 1, 10), (10, 40, 1, 1)).problem(DType.FP32)
    given = Operands.of(problem, "cpu", integers=False)
    meet = {"x": given.x[0, 3, 0], "w": given.w[:, 3, 0, 0]}
    meet[infinite][:2] = torch.tensor([inf, -inf])
    meet["w" if infinite == "x" else "x"].copy_(BESIDE)
    expected = oracle(problem, given).float()
    for candidate in smallest(problem):
        y = run(candidate, given)
        assert torch.allclose(y, expected, rtol=1e-5, atol=1e-5, equal_nan=True), candidate.id


@pytest.mark.filterwarnings("ignore:invalid value encountered")
@pytest.mark.parametrize("parts", [1, 4])
def test_infinities_of_both_signs_make_nan(parts: int) -> None:
    problem = Case((1, 128, 1, 3), (8, 128, 1, 1)).problem(DType.FP32)
    given = Operands.of(problem, "cpu", integers=True)
    given.w.fill_(1)
    given.x[0, 0, 0, 0], given.x[0, 127, 0, 0] = inf, -inf
    given.x[0, 0, 0, 1] = given.x[0, 127, 0, 1] = -inf
    y = run(in_parts(smallest(problem)[0], parts), given)
    assert y[..., 0].isnan().all()
    assert y[..., 1].eq(-inf).all()
    assert y[..., 2].isfinite().all()


# What is packed and what is staged.


def values_of(parts: Tensor, scale: Tensor) -> Tensor:
    """Of blocks of high and of low parts, [..., 2, block]: what they stand for, in float64."""
    high, low = parts.double().unbind(-2)
    assert ((high == 0) == (high * 2048 + low == 0)).all(), "only 0 has a high part of 0"
    return (high + low * 2.0**-11) * scale.double()[..., None]


def has_22_bits(stood_for: Tensor, value: Tensor) -> bool:
    """Of each number; 0 is 0."""
    return bool(((stood_for - value.double()).abs() <= 2.0**-22 * value.double().abs()).all())


def of_far_magnitudes(shape: tuple[int, ...]) -> Tensor:
    """Of both signs, some 2^27 times as large as others, and zeros."""
    torch.manual_seed(1)
    signs = torch.randint(-1, 2, shape)
    return signs * (1 + torch.rand(shape)) * 2.0 ** torch.randint(-13, 14, shape)


@pytest.mark.parametrize(
    ("name", "layout"),
    [
        ("groups of a volume", Layout.NHWC), ("any window of a volume", Layout.NCHW), ("1-D", Layout.NCHW),
        ("pointwise, strided", Layout.NHWC),
    ],
)  # fmt: skip
def test_a_staged_input_is_its_numbers_with_borders_of_zeros(name: str, layout: Layout) -> None:
    problem = SERVED[name].problem(DType.FP32, layout)
    given = Operands.of(problem, "cpu", integers=True)
    given.x.copy_(of_far_magnitudes(problem.x.shape))
    for candidate in smallest(problem):
        staging = Staging.of(problem, SPLIT, Tile.of(candidate))
        plan = BACKEND.build(candidate, CPU)
        workspace = torch.full((staging.nbytes,), 0xFF, dtype=torch.uint8)
        plan(given.x, plan.prepare(given.w), given.bias, given.residual, given.out, workspace)

        blocks, pixels = staging.pitch // staging.block, (staging.depth, staging.height, staging.width)
        numbers = workspace[: 2 * staging.numbers].view(torch.float16)
        scales = workspace[2 * staging.numbers :][: 4 * staging.pixels * staging.blocks].view(torch.float32)
        parts = numbers.view(staging.images, *pixels, staging.groups, blocks, 2, staging.block)
        by_block = scales.view(staging.groups, blocks, staging.images, *pixels).permute(2, 3, 4, 5, 0, 1)
        staged = values_of(parts, by_block).flatten(-2).movedim((-2, -1), (1, 2))
        assert (parts[..., 0, :].abs().amax(-1) <= 2**15).all(), "it is raised no further than fp16 reaches"

        sides = [side for pair in reversed(problem.padding) for side in pair]
        padded = F.pad(F.pad(given.x, sides), (0, 1))  # of planes as many columns are staged as make an even number
        volume = padded.reshape(problem.n, problem.groups, -1, *[1] * (3 - problem.rank), *padded.shape[2:])
        read = volume[..., : staging.depth, : staging.height, : staging.width]
        assert has_22_bits(staged[:, :, : read.shape[2]], read), candidate.id
        assert (staged[:, :, read.shape[2] :] == 0).all(), "channels that fill a block"


@pytest.mark.parametrize(
    ("shape", "groups", "flip"),
    [((12, 18, 3, 2), 2, False), ((9, 70, 1, 1), 1, True), ((8, 40, 3, 3, 3), 1, True), ((10, 35, 5), 2, True)],
)
def test_a_prepared_weight_is_its_numbers_tap_by_tap(shape: tuple[int, ...], groups: int, flip: bool) -> None:
    rank = len(shape) - 2
    none = ((0, 0),) * rank
    case = Case((1, groups * shape[1], *[5] * rank), shape, (1,) * rank, none, (1,) * rank, flip=flip, groups=groups)
    problem = case.problem(DType.FP32)
    weight = of_far_magnitudes(shape) * torch.logspace(-20, 10, shape[0]).view(-1, *[1] * (rank + 1))
    taps = weight.flip(*range(2, rank + 2)) if flip else weight
    for candidate in smallest(problem):
        block = Tile.of(candidate).bk
        prepared = BACKEND.build(candidate, CPU).prepare(weight)
        parts, scales = prepared[: -4 * shape[0]].view(torch.float16), prepared[-4 * shape[0] :].view(torch.float32)
        parts = parts.view(shape[0], prod(shape[2:]), -1, 2, block)
        raised = parts[..., 0, :].abs().amax((1, 2, 3))
        assert ((raised >= 2**14) & (raised <= 2**15)).all(), "fp16 has most room below"
        stood_for = values_of(parts, scales[:, None, None].expand(*parts.shape[:3])).flatten(2)
        assert has_22_bits(stood_for[..., : shape[1]], taps.flatten(2).mT), candidate.id
        assert (stood_for[..., shape[1] :] == 0).all(), "channels that fill a block"


def test_a_weight_may_lie_in_any_order() -> None:
    problem = SERVED["flipped"].problem(DType.FP32)
    given = Operands.of(problem, "cpu", integers=False)
    expected = oracle(problem, given)
    lying = given.w.permute(2, 0, 3, 1).contiguous().permute(1, 3, 0, 2)
    turned = replace(problem, w=TensorSpec(problem.w.shape, DType.FP32, lying.stride()))
    for candidate, other in zip(smallest(problem), smallest(turned), strict=True):
        packed, again = (BACKEND.build(each, CPU).prepare(w) for each, w in ((candidate, given.w), (other, lying)))
        assert torch.equal(packed, again), candidate.id
        assert torch.allclose(run(other, replace(given, w=lying)).double(), expected, rtol=1e-5, atol=1e-5)


# Calls.


@pytest.mark.parametrize("parts", [1, 2])
def test_an_output_is_made_where_none_is_given(parts: int) -> None:
    problem = SERVED["slice of a wider buffer"].problem(DType.FP32, Layout.NHWC, Layout.NCHW)
    given = Operands.of(problem, "cpu", integers=True)
    plan = BACKEND.build(in_parts(smallest(problem)[0], parts), CPU)
    y = plan(given.x, plan.prepare(given.w), given.bias, given.residual)
    assert y.stride() == problem.y.strides
    assert torch.equal(y, exact(oracle(problem, given), problem))


def test_operands_that_do_not_fit_the_epilogue_are_named() -> None:
    problem = Case((1, 20, 3, 3), (8, 20, 3, 3), epilogue="bias+relu").problem(DType.FP32)
    given = Operands.of(problem, "cpu", integers=True)
    plan = BACKEND.build(smallest(problem)[0], CPU)
    with pytest.raises(BadInput, match=r"bias\+relu, got neither bias nor residual"):
        plan(given.x, plan.prepare(given.w))
    with pytest.raises(BadInput, match="got bias and residual"):
        plan(given.x, plan.prepare(given.w), given.bias, given.out)


@pytest.mark.filterwarnings("ignore:invalid value encountered", "ignore:overflow encountered")
@pytest.mark.parametrize("name", BETWEEN_SCALES)
def test_nothing_is_lost_between_powers_of_two(name: str) -> None:
    """Their product may be beyond the range of fp32 where a result is not."""
    problem = Case((1, 32, 2, 2), (16, 32, 2, 2)).problem(DType.FP32)
    given = Operands.of(problem, "cpu", integers=False)
    x, w = BETWEEN_SCALES[name]
    given.x.copy_(x)
    given.w.copy_(w)
    y, expected = run(smallest(problem)[0], given).double(), oracle(problem, given)
    unsigned = oracle(problem, replace(given, x=given.x.abs(), w=given.w.abs()))
    beyond = expected.abs() > torch.finfo(torch.float32).max
    assert torch.equal(y[beyond], expected[beyond].float().double())
    assert ((y - expected).abs() <= 2.0**-21 * unsigned)[~beyond].all()
