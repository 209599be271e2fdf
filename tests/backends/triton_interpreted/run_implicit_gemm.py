"""The implicit GEMM in Triton's interpreter. Its own process runs this, since Triton decides at import how it runs."""

from __future__ import annotations

from dataclasses import replace
from itertools import cycle, product
from math import prod

import pytest
import torch
from hypothesis import given as drawn
from hypothesis import settings
from hypothesis import strategies as st

pytest.importorskip("triton")

from backends.triton_interpreted.cases import CASES, PLANES, VOLUMES, WIDE_GROUPS, Case, Operands, exact, listed, oracle
from convwright.backends.triton.backend import TritonKernels
from convwright.backends.triton.gemm.algorithms import algorithms_of, algorithms_to_be_named
from convwright.backends.triton.gemm.tiles import TILES, Tile
from convwright.backends.triton.implicit_gemm.offers import KERNEL, tiles_of
from convwright.core.candidate import Candidate, Offer, Refusal, Source
from convwright.core.direction import Direction
from convwright.core.dtype import DType
from convwright.core.problem import ConvProblem
from convwright.core.tensor_spec import Layout
from convwright.errors import BadInput
from convwright.measuring.hardware.machine import device_facts
from problem_space import operands, problems
from problem_space import oracle as oracle_by_role
from problem_space import run as run_by_role

BACKEND, CPU = TritonKernels(), device_facts("cpu")
# Its sums are as long as those of the 3x3, and it has fewer of them.
LONG_SUMS = Case((1, 64, 4, 5), (16, 64, 3, 3), padding=((1, 1), (1, 1)))
FP16_AND_FP32 = [DType.FP16, DType.FP32]
ARITHMETICS = [(dtype, algorithm.name) for dtype in FP16_AND_FP32 for algorithm in algorithms_of(KERNEL, dtype)]
SERVED = CASES | VOLUMES | WIDE_GROUPS


def run(candidate: Candidate, given: Operands) -> torch.Tensor:
    plan = BACKEND.build(candidate, CPU)
    return plan(given.x, plan.prepare(given.w), given.bias, given.residual, given.out)


def all_candidates(problem: ConvProblem) -> list[Candidate]:
    """Every tile that there is, not only those that an estimate would keep for the problem."""
    return [
        Candidate(problem, "triton", algorithm.name, tile.config, algorithm.arithmetic, 0, True, Source.RULE)
        for algorithm in algorithms_of(KERNEL, problem.dtype)
        for tile in TILES[algorithm.arithmetic]
    ]


def unnamed(problem: ConvProblem) -> list[Offer]:
    """What is offered but for what a policy has to name, which is refused."""
    named = {each.id for each in algorithms_to_be_named(KERNEL, problem.dtype)}
    return [offer for offer in listed(KERNEL, problem, CPU) if offer.id not in named]


def whole(problem: ConvProblem) -> dict[str, Candidate]:
    """By the names of the algorithms, of each what the interpreter has least to do for: its arithmetic is the same in
    every tile, and those in parts have tests of their own."""
    offers = unnamed(problem)
    found = [offer for offer in offers if isinstance(offer, Candidate)]
    assert found == offers
    steps = sorted((each for each in found if not Tile.of(each).in_parts), key=turns, reverse=True)
    return {candidate.algorithm: candidate for candidate in steps}


def turns(candidate: Candidate) -> int:
    """Of all programs; to begin and to end takes one as long as some of them."""
    problem, tile = candidate.problem, Tile.of(candidate)
    return tiles_of(tile, problem) * (4 + tile.steps(problem.w.shape[1], prod(problem.taps)))


def comes_out_exactly(problem: ConvProblem, algorithm: str) -> None:
    given = Operands.of(problem, "cpu", integers=True)
    candidate = whole(problem)[algorithm]
    given.out.fill_(float("nan"))
    assert torch.equal(run(candidate, given), exact(oracle(problem, given), problem)), candidate.id


# Each case with one of the arithmetics, by turns; every tile has its turn below.
@pytest.mark.parametrize(("name", "dtype", "algorithm"), [(name, *ARITHMETICS[i % 5]) for i, name in enumerate(SERVED)])
def test_small_integers_come_out_exactly(name: str, dtype: DType, algorithm: str) -> None:
    comes_out_exactly(SERVED[name].problem(dtype), algorithm)


IN_PLANES = [
    "3x3", "odd channels", "stem", "dilated", "slice of a wider buffer", "1-D", "3x3x3", "any window of a volume",
    "groups that fill no tile", "groups of a volume",
]  # fmt: skip
# So many that each arithmetic meets each way to lie.
LYING = [(name, *ARITHMETICS[i % 5], *PLANES[i % 3]) for i, name in enumerate([*IN_PLANES, *IN_PLANES[:5]])]


@pytest.mark.parametrize(("name", "dtype", "algorithm", "x", "y"), LYING)
def test_operands_may_lie_in_planes(name: str, dtype: DType, algorithm: str, x: Layout, y: Layout) -> None:
    comes_out_exactly(SERVED[name].problem(dtype, x, y), algorithm)


# 17 channels make a step of the sum run across taps, 56 keep to one tap and leave a tail in it.
@pytest.mark.parametrize("dtype", FP16_AND_FP32)
def test_every_tile_handles_its_tails(dtype: DType) -> None:
    """Of each two algorithms that share tiles, by turns."""
    made = []
    for channels, layout in product((17, 56), (Layout.NHWC, Layout.NCHW)):
        case = Case((1, channels, 3, 7), (19, channels, 2, 1), padding=((1, 0), (0, 0)), epilogue="residual+bias+relu")
        problem = case.problem(dtype, layout, layout)
        given = Operands.of(problem, "cpu", integers=True)
        made.append((problem, given, exact(oracle(problem, given), problem)))
    tiles = {(each.arithmetic, each.config): each for each in all_candidates(made[0][0])}
    other = {(each.arithmetic, each.config): each for each in reversed(all_candidates(made[0][0]))}
    for place, (key, (problem, given, expected)) in enumerate(zip(tiles, cycle(made), strict=False)):
        candidate = replace((tiles if place // 4 % 2 else other)[key], problem=problem)
        given.out.fill_(float("nan"))
        assert torch.equal(run(candidate, given), expected), (candidate.id, problem.key)


@settings(max_examples=8)
@drawn(problems(least_images=1, channels=(1, 3, 8, 9)), st.sampled_from(FP16_AND_FP32), st.data())
def test_any_problem_that_is_served(drawn_problem: ConvProblem, dtype: DType, data: st.DataObject) -> None:
    layouts = st.sampled_from([Layout.NCHW, Layout.NHWC])
    specs = {role: replace(getattr(drawn_problem, role).dense(data.draw(layouts)), dtype=dtype) for role in "xy"}
    problem = replace(drawn_problem.asking(Direction.FORWARD), **specs, w=replace(drawn_problem.w, dtype=dtype))
    offers = unnamed(problem)
    if problem.groups > 1 and min(problem.w.shape[1], problem.k // problem.groups) < 8:
        assert all(isinstance(offer, Refusal) for offer in offers)
        return
    given = operands(problem, seed=2)
    expected = oracle_by_role(problem, given)
    candidate = data.draw(st.sampled_from(offers))
    assert isinstance(candidate, Candidate)
    plan = BACKEND.build(candidate, CPU)
    torch.testing.assert_close(run_by_role(plan, given).double(), expected, rtol=0, atol=0, msg=candidate.id)


def test_a_tile_may_run_across_taps_or_not() -> None:
    assert Tile(64, 64, 32, 4, 4).runs_across_taps(35, taps=2)
    assert not Tile(64, 64, 32, 4, 4).runs_across_taps(56, taps=2)
    assert not Tile(64, 64, 32, 4, 4).runs_across_taps(35, taps=1)


def test_three_products_of_tf32_parts_are_as_good_as_fp32() -> None:
    problem = LONG_SUMS.problem(DType.FP32)
    given = Operands.of(problem, "cpu", integers=False)
    expected = oracle(problem, given)
    for candidate in whole(problem).values():
        if "3xtf32" in candidate.algorithm:
            error = (run(candidate, given).double() - expected).norm() / expected.norm()
            assert error < 4e-7, candidate.id


def test_a_short_sum_is_as_good_as_its_rounding() -> None:
    """Four products: what three leave out is up to 2^-22 of each, more than fp32 errs in a sum of five."""
    problem = Case((1, 1, 9, 40), (3, 1, 1, 5)).problem(DType.FP32)
    given = Operands.of(problem, "cpu", integers=False)
    expected = oracle(problem, given)
    for candidate in whole(problem).values():
        if "3xtf32" in candidate.algorithm:
            error = (run(candidate, given).double() - expected).norm() / expected.norm()
            assert error < 6e-8, candidate.id


def test_tf32_is_rounded_and_not_cut() -> None:
    """Inputs rounded to 11 bits err by 2^-11.75 on average; cut, as the tensor cores do, by 2.7 times as much."""
    problem = LONG_SUMS.problem(DType.FP32)
    given = Operands.of(problem, "cpu", integers=False)
    expected = oracle(problem, given)
    for candidate in whole(problem).values():
        if candidate.algorithm.startswith("implicit-gemm-tf32"):
            error = (run(candidate, given).double() - expected).norm() / expected.norm()
            assert 2e-4 < error < 4e-4, candidate.id


@pytest.mark.parametrize("bits", [0x7F800000, 0xFF800000, 0x7FC00000, 0x7FFFFFFF])
@pytest.mark.parametrize("place", ["x", "w"])
def test_what_is_not_finite_lands_where_it_belongs(bits: int, place: str) -> None:
    """An infinity of each sign, PyTorch's NaN and CUDA's, which rounding on the bits would turn into a zero."""
    problem = Case((1, 24, 3, 4), (10, 24, 3, 3), padding=((1, 1), (1, 1))).problem(DType.FP32)
    given = Operands.of(problem, "cpu", integers=False)
    getattr(given, place)[0, 3, 1, 1] = torch.tensor(bits, dtype=torch.uint32).view(torch.float32)
    expected = oracle(problem, given).float()
    for candidate in whole(problem).values():
        # TF32 errs by up to 2^-11 of the sum of 216 products of normal numbers without their signs.
        bound = 1e-5 if "3xtf32" in candidate.algorithm else 5e-2
        assert torch.allclose(run(candidate, given), expected, rtol=bound, atol=bound, equal_nan=True), candidate.id


@pytest.mark.parametrize("sign", [1, -1])
def test_the_largest_finite_numbers_stay_finite(sign: int) -> None:
    """Rounded to nearest they would be infinite."""
    problem = Case((1, 24, 2, 3), (10, 24, 1, 1)).problem(DType.FP32)
    given = Operands.of(problem, "cpu", integers=False)
    given.x.zero_()[0, 3, 1, 1] = sign * torch.finfo(torch.float32).max
    given.w.fill_(0.5)
    expected = oracle(problem, given).float()
    assert expected.isfinite().all()
    assert expected.abs().max() > 1.7e38
    for candidate in whole(problem).values():
        bound = 1e-6 if "3xtf32" in candidate.algorithm else 1e-3
        assert torch.allclose(run(candidate, given), expected, rtol=bound, atol=0), candidate.id


def test_an_output_is_made_where_none_is_given() -> None:
    problem = CASES["3x3"].problem(DType.FP16)
    given = Operands.of(problem, "cpu", integers=True)
    plan = BACKEND.build(whole(problem)["implicit-gemm"], CPU)
    y = plan(given.x, plan.prepare(given.w), given.bias)
    assert y.stride() == problem.y.strides
    assert torch.equal(y, exact(oracle(problem, given), problem))


def test_a_channels_last_weight_is_taken_as_it_lies() -> None:
    problem = CASES["3x3"].problem(DType.FP16)
    given = Operands.of(problem, "cpu", integers=True)
    for candidate in all_candidates(problem)[:1]:
        prepared = BACKEND.build(candidate, CPU).prepare(given.w)
        assert prepared.data_ptr() == given.w.data_ptr()


def test_operands_that_do_not_fit_the_epilogue_are_named() -> None:
    problem = CASES["3x3"].problem(DType.FP16)
    given = Operands.of(problem, "cpu", integers=True)
    plan = BACKEND.build(all_candidates(problem)[0], CPU)
    with pytest.raises(BadInput, match=r"bias\+relu, got neither bias nor residual"):
        plan(given.x, plan.prepare(given.w))
    with pytest.raises(BadInput, match="got bias and residual"):
        plan(given.x, plan.prepare(given.w), given.bias, given.out)


def test_the_interpreter_is_not_asked_for_bf16() -> None:
    (offer,) = listed("implicit-gemm", CASES["3x3"].problem(DType.BF16), CPU)
    assert isinstance(offer, Refusal)
    assert "bf16" in offer.reason
