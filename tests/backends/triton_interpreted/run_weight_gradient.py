"""The weight's gradient in Triton's interpreter. Its own process runs this, as it does for the implicit GEMM."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import pytest
import torch
from hypothesis import given as drawn
from hypothesis import settings
from hypothesis import strategies as st

pytest.importorskip("triton")

from backends.triton_interpreted.cases import Case, listed
from backends.triton_interpreted.weight_gradient_cases import (
    ALGORITHM,
    ALL_CASES,
    NAMES,
    Operands,
    all_tiles,
    gradient,
    with_gaps,
)
from convwright.backends.triton.backend import TritonKernels
from convwright.backends.triton.operands import pixel_count
from convwright.backends.triton.weight_gradient.offers import PartedTile, algorithms, candidate_of, pitch
from convwright.core.candidate import Candidate, Refusal
from convwright.core.direction import Direction
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
ARITHMETICS = [(dtype, algorithm.name) for dtype in FP16_AND_FP32 for algorithm in algorithms(dtype)]
PLAIN = Case((2, 12, 7, 8), (10, 12, 2, 2), padding=((1, 1), (1, 1)))


def offered(problem: ConvProblem) -> list[Candidate]:
    offers = listed(ALGORITHM, problem, CPU)
    found = [offer for offer in offers if isinstance(offer, Candidate)]
    assert found
    assert found == offers
    return found


def computed(candidate: Candidate, given: Operands) -> torch.Tensor:
    plan = BACKEND.build(candidate, CPU)
    workspace = torch.full((plan.workspace_bytes,), 0xFF, dtype=torch.uint8)
    given.out.fill_(float("nan"))
    assert plan(given.x, given.dy, out=given.out, workspace=workspace) is given.out
    return given.out


def turns(candidate: Candidate) -> int:
    """Of all programs; to begin and to end takes one as long as some of them."""
    problem, tile = candidate.problem, PartedTile.of(candidate)
    return tile.tiles(problem) * tile.parts * (4 + tile.steps(pixel_count(problem)))


def least(candidates: list[Candidate]) -> dict[str, Candidate]:
    """By the names of the algorithms, of each what the interpreter has least to do for."""
    return {candidate.algorithm: candidate for candidate in sorted(candidates, key=turns, reverse=True)}


# Each case with one of the arithmetics, by turns; every tile has its turn below.
@pytest.mark.parametrize(("place", "name"), [*enumerate(NAMES)])
def test_small_integers_come_out_exactly(place: int, name: str) -> None:
    dtype, algorithm = ARITHMETICS[place % len(ARITHMETICS)]
    problem = gradient(ALL_CASES[name], dtype)
    given = Operands.of(problem, "cpu", integers=True)
    found = offered(problem)
    candidate = least(all_tiles(problem, 2) if place % 2 else found)[algorithm]
    assert torch.equal(computed(candidate, given), given.expected(problem).to(torch_dtype(dtype))), candidate.id


# 56 channels fill no tile, 17 make one run across taps; 28 pixels leave a tail in each step and part.
@pytest.mark.parametrize("dtype", FP16_AND_FP32)
def test_every_tile_handles_its_tails(dtype: DType) -> None:
    """Of algorithms that share tiles, by turns."""
    made = []
    for channels, parts in ((17, 1), (56, 2), (17, 2), (56, 1)):
        case = Case((1, channels, 7, 14), (19, channels, 2, 1), padding=((1, 0), (0, 0)), stride=(2, 2))
        problem = gradient(case, dtype)
        given = Operands.of(problem, "cpu", integers=True)
        made.append((all_tiles(problem, parts), given, given.expected(problem).to(torch_dtype(dtype))))
    alike: dict[object, list[int]] = {}
    for place, candidate in enumerate(made[0][0]):
        tile = PartedTile.of(candidate)
        alike.setdefault((candidate.arithmetic, tile.bm, tile.bn, tile.bk), []).append(place)
    for turn, places in enumerate(alike.values()):
        candidates, given, expected = made[turn % 4]
        candidate = candidates[places[turn // 4 % len(places)]]
        assert torch.equal(computed(candidate, given), expected), candidate.id


@pytest.mark.parametrize("parts", [2, 3, 33])
def test_parts_add_up(parts: int) -> None:
    """Also where there are more of them than a program loads at once, and where the last have nothing to sum."""
    problem = gradient(PLAIN, DType.FP32)
    given = Operands.of(problem, "cpu", integers=True)
    expected = given.expected(problem).float()
    for candidate in least(all_tiles(problem, parts)).values():
        packed = 8 * problem.k * pitch(problem) if candidate.algorithm.endswith("packed") else 0
        assert candidate.workspace_bytes == packed + 4 * problem.w.numel * parts
        assert torch.equal(computed(candidate, given), expected), candidate.id


@pytest.mark.parametrize("scattered", [None, 1])
def test_many_sums_of_one_part_are_laid_either_way(scattered: int | None) -> None:
    problem = gradient(Case((1, 480, 2, 3), (16, 480, 3, 3), padding=((1, 1), (1, 1))), DType.FP16, Layout.NCHW)
    algorithm = algorithms(DType.FP16)[0]
    found = [each for each in all_tiles(problem, 1) if each.algorithm == algorithm.name]
    tile = replace(PartedTile.of(least(found)[algorithm.name]), scattered=scattered)
    candidate = candidate_of(problem, algorithm, tile)
    assert (candidate.workspace_bytes == 0) == (scattered == 1)
    given = Operands.of(problem, "cpu", integers=True)
    assert torch.equal(computed(candidate, given), given.expected(problem).half())


WRITTEN = [
    *product(["flipped", "1-D"], ["nchw", "nhwc"], [1, 2]),
    *product(["flipped", "1-D", "one plane of a volume", "groups in 1-D, flipped"], ["gaps"], [1, 2]),
]


@pytest.mark.parametrize(("place", "name", "layout", "parts"), [(i, *each) for i, each in enumerate(WRITTEN)])
def test_the_gradient_is_written_wherever_the_weight_lies(place: int, name: str, layout: str, parts: int) -> None:
    problem = gradient(ALL_CASES[name], DType.FP32, Layout.NHWC if layout == "nhwc" else Layout.NCHW)
    problem = with_gaps(problem) if layout == "gaps" else problem
    given = operands(problem, seed=1)
    found = [*least(all_tiles(problem, parts)).values()]
    plan = BACKEND.build(found[place % len(found)], CPU)
    torch.testing.assert_close(run(plan, given).double(), oracle(problem, given), rtol=0, atol=0)


@settings(max_examples=10)
@drawn(problems(least_images=1, channels=(1, 3, 8, 9)), st.sampled_from(FP16_AND_FP32), st.integers(1, 3), st.data())
def test_any_problem_that_is_served(drawn_problem: ConvProblem, dtype: DType, parts: int, data: st.DataObject) -> None:
    specs = {role: replace(getattr(drawn_problem, role).dense(Layout.NHWC), dtype=dtype) for role in "xy"}
    w = replace(drawn_problem.w, dtype=dtype)
    problem = replace(drawn_problem, **specs, w=w).asking(Direction.BACKWARD_WEIGHT)
    if problem.groups > 1 and min(problem.w.shape[1], problem.k // problem.groups) < 8:
        assert all(isinstance(offer, Refusal) for offer in listed(ALGORITHM, problem, CPU))
        return
    given = operands(problem, seed=2)
    expected = oracle(problem, given)
    for candidate in (offered(problem)[0], data.draw(st.sampled_from(all_tiles(problem, parts)))):
        plan = BACKEND.build(candidate, CPU)
        torch.testing.assert_close(run(plan, given).double(), expected, rtol=0, atol=0, msg=candidate.id)


@pytest.mark.filterwarnings("ignore:invalid value encountered")
@pytest.mark.parametrize("dtype", FP16_AND_FP32)
def test_errors_on_every_kind_of_data_are_explained(dtype: DType) -> None:
    """Infinities and NaNs among them."""
    problem = gradient(Case((1, 6, 5, 8), (9, 6, 2, 2), padding=((1, 1), (1, 1))), dtype)
    check = ErrorCheck(problem, "cpu")
    for candidate in least(all_tiles(problem, 2)).values():
        plan = BACKEND.build(candidate, CPU)
        errors = check.errors(lambda by_role, plan=plan: plan(by_role["x"], by_role["dy"]))
        assert absolute_objection(problem, candidate.arithmetic, errors, Policy()) is None, candidate.id


def test_a_long_sum_in_3xtf32_is_as_good_as_its_rounding() -> None:
    problem = gradient(Case((1, 8, 50, 50), (9, 8, 1, 1)), DType.FP32)
    given = Operands.of(problem, "cpu", integers=False)
    given.x.abs_()
    given.dy.abs_()
    expected = given.expected(problem)
    for parts, place in ((1, 5), (6, 16)):
        candidate = all_tiles(problem, parts)[place]
        assert candidate.algorithm.startswith("weight-gradient-3xtf32")
        error = (computed(candidate, given).double() - expected).norm() / expected.norm()
        assert error < 1e-6, candidate.id


def test_tf32_is_rounded_and_not_cut() -> None:
    """Inputs rounded to 11 bits err by 2^-11.75 on average; cut, as the tensor cores do, by 2.7 times as much."""
    problem = gradient(PLAIN, DType.FP32)
    given = Operands.of(problem, "cpu", integers=False)
    expected = given.expected(problem)
    candidate = all_tiles(problem, 2)[-1]
    assert candidate.algorithm == "weight-gradient-tf32"
    error = (computed(candidate, given).double() - expected).norm() / expected.norm()
    assert 2e-4 < error < 4e-4


def test_output_and_workspace_are_made_where_none_are_given() -> None:
    problem = gradient(PLAIN, DType.FP16, Layout.NCHW)
    given = Operands.of(problem, "cpu", integers=True)
    plan = BACKEND.build(all_tiles(problem, 2)[-1], CPU)
    dw = plan(given.x, given.dy)
    assert dw.stride() == problem.w.strides
    assert torch.equal(dw, given.expected(problem).half())


def test_a_tile_may_run_across_taps_or_not() -> None:
    tile = PartedTile(64, 64, 32, 1, 4, 4)
    assert tile.runs_across_taps(35, taps=2)
    assert not tile.runs_across_taps(56, taps=2)
    assert not tile.runs_across_taps(35, taps=1)


def test_the_interpreter_is_not_asked_for_bf16() -> None:
    (offer,) = listed(ALGORITHM, gradient(PLAIN, DType.BF16), CPU)
    assert isinstance(offer, Refusal)
    assert offer.id == "triton/weight-gradient"
    assert "bf16" in offer.reason
