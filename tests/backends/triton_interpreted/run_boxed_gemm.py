"""Products of boxes in Triton's interpreter. Its own process runs this, as for the implicit GEMM."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from hypothesis import given as drawn
from hypothesis import settings
from hypothesis import strategies as st

pytest.importorskip("triton")

from backends.triton_interpreted.boxed_gemm_cases import ALGORITHM, SAME, SERVED, every_tile, in_whole_numbers, sliced
from backends.triton_interpreted.cases import Case, Operands, exact, listed, oracle
from backends.triton_interpreted.drawn_cases import drawn_case
from convwright.backends.triton.backend import TritonKernels
from convwright.backends.triton.boxed_gemm.offers import Tile, tiles_of
from convwright.backends.triton.boxes.window import Window
from convwright.core.candidate import Candidate, Refusal
from convwright.core.direction import Role
from convwright.core.dtype import DType
from convwright.core.epilogue import Activation, Epilogue
from convwright.core.error_rule import absolute_objection
from convwright.core.policy import Policy
from convwright.core.problem import ConvProblem
from convwright.core.tensor_spec import Layout, TensorSpec, dense_strides
from convwright.errors import BadInput
from convwright.measuring.checking.error import ErrorCheck
from convwright.measuring.hardware.machine import device_facts

BACKEND, CPU = TritonKernels(), device_facts("cpu")


def run(candidate: Candidate, given: Operands) -> torch.Tensor:
    return given.computed(BACKEND.build(candidate, CPU))


def least(problem: ConvProblem) -> Candidate:
    """What the interpreter has least to do for, in two programs where there are several tiles."""

    def work(candidate: Candidate) -> tuple[int, int]:
        tile = Tile.of(candidate)
        return tiles_of(tile, Window.of(problem)) * tile.bn * tile.pixels, -tile.bk

    return min(every_tile(problem, 2), key=work)


def comes_out_exactly(candidate: Candidate) -> None:
    problem = candidate.problem
    given = Operands.of(problem, "cpu", integers=True)
    assert torch.equal(run(candidate, given), exact(oracle(problem, given), problem)), candidate.id


@pytest.mark.parametrize("name", SERVED)
def test_small_integers_come_out_exactly(name: str) -> None:
    comes_out_exactly(least(in_whole_numbers(SERVED[name]).problem(DType.FP16)))


@pytest.mark.parametrize("name", ["pointwise", "3x3", "strided", "1-D", "one pixel", "volume, strided"])
def test_operands_may_be_slices_of_wider_buffers(name: str) -> None:
    comes_out_exactly(least(sliced(replace(SERVED[name], slack=8).problem(DType.FP16))))


# 2 images of 9 by 10 pixels and 72 channels leave a tail in all tiles.
@pytest.mark.parametrize("place", range(13))
def test_every_tile_handles_its_tails_in_programs_of_several(place: int) -> None:
    problem = Case((2, 64, 9, 10), (136, 64, 1, 2), epilogue="residual+bias+relu").problem(DType.FP16)
    every = every_tile(problem, 2)
    for candidate in every[place::13]:
        comes_out_exactly(candidate)


@pytest.mark.parametrize("activation", ["silu", "gelu", "hardswish"])
def test_the_epilogue_follows_the_whole_sum(activation: str) -> None:
    problem = Case((2, 16, 4, 5), (8, 16, 2, 2), epilogue=f"residual+bias+{activation}").problem(DType.FP16)
    given = Operands.of(problem, "cpu", integers=True)
    y = run(least(problem), given).double()
    assert torch.allclose(y, oracle(problem, given), rtol=2 * DType.FP16.roundoff, atol=1e-6)


@st.composite
def windows(draw: st.DrawFn) -> ConvProblem:
    problem = drawn_case(draw, [8, 12, 16, 24, 40], [8, 16, 72]).problem(DType.FP16)
    epilogue = Epilogue(draw(st.booleans()), draw(st.booleans()), draw(st.sampled_from([*Activation][:2])))
    return sliced(replace(problem, epilogue=epilogue))


@settings(max_examples=12)
@drawn(windows(), st.data())
def test_any_problem_that_is_served(problem: ConvProblem, data: st.DataObject) -> None:
    if problem.c % 8:
        (refusal,) = listed(ALGORITHM, problem, CPU)
        assert isinstance(refusal, Refusal)
        return
    comes_out_exactly(data.draw(st.sampled_from(every_tile(problem, data.draw(st.integers(1, 3))))))


@pytest.mark.filterwarnings("ignore:invalid value encountered", "ignore:overflow encountered")
def test_errors_on_every_kind_of_data_are_explained() -> None:
    """Infinities and NaNs among them."""
    problem = Case((2, 16, 4, 5), (8, 16, 2, 3), padding=SAME).problem(DType.FP16)
    plan = BACKEND.build(least(problem), CPU)
    errors = ErrorCheck(problem, "cpu").errors(lambda given: plan(given[Role.X], plan.prepare(given[Role.W])))
    assert absolute_objection(problem, plan.candidate.arithmetic, errors, Policy()) is None


@pytest.mark.filterwarnings("ignore:invalid value encountered")
@pytest.mark.parametrize("value", [float("inf"), float("-inf"), float("nan")])
@pytest.mark.parametrize("place", ["x", "w"])
def test_what_is_not_finite_lands_where_it_belongs(value: float, place: str) -> None:
    """And nowhere beside an image, in which zeros stand for what is not there."""
    problem = Case((2, 16, 4, 5), (16, 16, 3, 3), padding=SAME).problem(DType.FP16)
    given = Operands.of(problem, "cpu", integers=True)
    getattr(given, place)[1, 3, 1, 1] = value
    assert torch.equal(run(least(problem), given).isfinite(), oracle(problem, given).half().isfinite())


def test_an_output_is_made_where_none_is_given() -> None:
    problem = sliced(replace(SERVED["3x3"], slack=8).problem(DType.FP16))
    given = Operands.of(problem, "cpu", integers=True)
    plan = BACKEND.build(least(problem), CPU)
    y = plan(given.x, plan.prepare(given.w), given.bias, given.residual)
    assert y.stride() == problem.y.strides
    assert torch.equal(y, exact(oracle(problem, given), problem))


def test_a_weight_may_lie_in_any_order() -> None:
    problem = SERVED["flipped"].problem(DType.FP16)
    given = Operands.of(problem, "cpu", integers=True)
    lying = given.w.permute(2, 0, 3, 1).contiguous().permute(1, 3, 0, 2)
    turned = replace(problem, w=TensorSpec(problem.w.shape, DType.FP16, lying.stride()))
    assert torch.equal(run(least(turned), replace(given, w=lying)), exact(oracle(problem, given), problem))


def test_one_image_may_be_read_for_all() -> None:
    """Of a stride of 0 the copy engine is told nothing: what is refused here stays right elsewhere."""
    problem = Case((3, 16, 4, 4), (8, 16, 1, 1)).problem(DType.FP16)
    strides = (0, *dense_strides(problem.x.shape, Layout.NHWC)[1:])
    (refusal,) = listed(ALGORITHM, replace(problem, x=replace(problem.x, strides=strides)), CPU)
    assert isinstance(refusal, Refusal)
    assert "strides of `input` in multiples of 16 bytes, got 0, 256, 64, 16 elements" in refusal.reason


def test_operands_that_do_not_fit_the_epilogue_are_named() -> None:
    problem = SERVED["3x3"].problem(DType.FP16)
    given = Operands.of(problem, "cpu", integers=True)
    plan = BACKEND.build(least(problem), CPU)
    with pytest.raises(BadInput, match=r"bias\+relu, got neither bias nor residual"):
        plan(given.x, plan.prepare(given.w))
