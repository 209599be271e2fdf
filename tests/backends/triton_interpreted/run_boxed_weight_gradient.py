"""A weight's gradient in boxes in Triton's interpreter. Its own process runs this, as for the implicit GEMM."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from hypothesis import given as drawn
from hypothesis import settings
from hypothesis import strategies as st

pytest.importorskip("triton")

from backends.triton_interpreted.boxed_gemm_cases import SAME
from backends.triton_interpreted.boxed_weight_gradient_cases import ALGORITHM, SERVED, every_tile, posed
from backends.triton_interpreted.cases import Case, listed
from backends.triton_interpreted.drawn_cases import drawn_case
from backends.triton_interpreted.weight_gradient_cases import Operands, with_gaps
from convwright.backends.triton.backend import TritonKernels
from convwright.backends.triton.boxed_weight_gradient.offers import Tile, products_of, reads_beside, steps
from convwright.core.candidate import Candidate, Refusal
from convwright.core.dtype import DType
from convwright.core.error_rule import absolute_objection
from convwright.core.policy import Policy
from convwright.core.problem import ConvProblem
from convwright.core.tensor_spec import Layout
from convwright.measuring.checking.error import ErrorCheck
from convwright.measuring.hardware.machine import device_facts

BACKEND, CPU = TritonKernels(), device_facts("cpu")


def least(problem: ConvProblem, parts: int = 2) -> Candidate:
    """What the interpreter has least to do for."""

    def work(candidate: Candidate) -> int:
        tile = Tile.of(candidate)
        return products_of(tile, problem) * (4 + steps(tile, problem)) * tile.bm * tile.bn

    return min(every_tile(problem, parts), key=work)


def comes_out_exactly(candidate: Candidate) -> None:
    problem = candidate.problem
    given = Operands.of(problem, "cpu", integers=True)
    expected = given.expected(problem).half()
    assert torch.equal(given.computed(BACKEND.build(candidate, CPU)), expected), candidate.id


@pytest.mark.parametrize(("place", "name"), [*enumerate(SERVED)])
def test_small_integers_come_out_exactly(place: int, name: str) -> None:
    comes_out_exactly(least(posed(SERVED[name], DType.FP16, slack=8 * (place % 2)), 1 + place % 3))


@pytest.mark.parametrize("place", range(8))
def test_every_tile_handles_its_tails(place: int) -> None:
    problem = posed(Case((2, 72, 9, 10), (40, 72, 1, 2)), DType.FP16)
    for candidate in every_tile(problem, 1 + place % 2)[place::8]:
        comes_out_exactly(candidate)


@pytest.mark.parametrize("parts", [2, 3, 7])
def test_parts_add_up(parts: int) -> None:
    """Also where the last of them have nothing to sum."""
    problem = posed(SERVED["3x3"], DType.FP16)
    candidate = least(problem, parts)
    assert candidate.workspace_bytes == 4 * problem.w.numel * parts
    comes_out_exactly(candidate)


@pytest.mark.parametrize("lying", ["nchw", "gaps"])
@pytest.mark.parametrize("name", ["flipped", "1-D", "volume"])
def test_the_gradient_is_written_wherever_the_weight_lies(name: str, lying: str) -> None:
    problem = posed(SERVED[name], DType.FP16, Layout.NCHW)
    comes_out_exactly(least(with_gaps(problem) if lying == "gaps" else problem))


@st.composite
def windows(draw: st.DrawFn) -> ConvProblem:
    case = drawn_case(draw, [16, 24, 72], [16, 24, 72])
    return posed(case, DType.FP16, draw(st.sampled_from(Layout)), slack=case.slack)


@settings(max_examples=6)
@drawn(windows(), st.data())
def test_any_problem_that_is_served(problem: ConvProblem, data: st.DataObject) -> None:
    comes_out_exactly(data.draw(st.sampled_from(every_tile(problem, data.draw(st.integers(1, 3))))))


@pytest.mark.filterwarnings("ignore:invalid value encountered", "ignore:overflow encountered")
@pytest.mark.parametrize("name", ["flipped", "3x3 in whole boxes"])
def test_errors_on_every_kind_of_data_are_explained(name: str) -> None:
    """Infinities and NaNs among them."""
    problem = posed(SERVED[name], DType.FP16)
    plan = BACKEND.build(least(problem), CPU)
    errors = ErrorCheck(problem, "cpu").errors(
        lambda given: plan(*(given[role] for role in problem.direction.operands))
    )
    assert absolute_objection(problem, plan.candidate.arithmetic, errors, Policy()) is None


@pytest.mark.filterwarnings("ignore:invalid value encountered")
@pytest.mark.parametrize("value", [float("inf"), float("nan")])
@pytest.mark.parametrize("place", ["x", "dy"])
def test_what_is_not_finite_lands_where_it_belongs(value: float, place: str) -> None:
    """In the last column, which pixels beside the output would read: a gradient of 0 makes NaN of an infinity."""
    for case in (Case((2, 16, 5, 7), (16, 16, 3, 3), padding=SAME), Case((1, 16, 4, 8), (16, 16, 1, 3))):
        problem = posed(case, DType.FP16)
        for candidate in every_tile(problem, 1)[::5]:
            given = Operands.of(problem, "cpu", integers=True)
            getattr(given, place)[0, 3, 1, -1] = value
            y = given.computed(BACKEND.build(candidate, CPU))
            assert torch.equal(y.isfinite(), given.expected(problem).isfinite()), candidate.id


def test_boxes_that_read_beside_the_output_are_known() -> None:
    """Where a box ends with the output, or reads beside the input too, nothing is looked at."""
    tile = replace(Tile.of(least(posed(SERVED["3x3"], DType.FP16))), pixels=64)
    for name, beside in (("3x3", True), ("3x3 in whole boxes", False), ("pointwise", False), ("strided", False)):
        assert any(reads_beside(tile, posed(SERVED[name], DType.FP16))) == beside, name


def test_fewer_channels_are_refused() -> None:
    (refusal,) = listed(ALGORITHM, posed(Case((2, 8, 5, 7), (16, 8, 3, 3)), DType.FP16), CPU)
    assert isinstance(refusal, Refusal)
    assert "needs at least 16 input and output channels, got 8 and 16" in refusal.reason
