"""The kernel for few weights in Triton's interpreter, in a process of its own."""

from __future__ import annotations

from dataclasses import replace
from math import inf, nan, sqrt

import pytest
import torch
from hypothesis import given as drawn
from hypothesis import settings
from hypothesis import strategies as st

pytest.importorskip("triton")

from backends.triton_interpreted.cases import GROUPED, Case
from backends.triton_interpreted.few_weights_cases import FEW, LAYOUTS, MIXED, all_patches, offered, ragged
from backends.triton_interpreted.weight_gradient_cases import Operands, gradient, with_gaps
from convwright.backends.triton.backend import TritonKernels
from convwright.backends.triton.few_weights.offers import refusal_reason
from convwright.core.candidate import Candidate
from convwright.core.direction import Direction
from convwright.core.dtype import DType
from convwright.core.error_rule import absolute_objection
from convwright.core.policy import Policy
from convwright.core.problem import ConvProblem
from convwright.core.tensor_spec import Layout
from convwright.measuring.error import ErrorCheck
from convwright.measuring.machine import device_facts
from convwright.tensors import torch_dtype
from problem_space import operands, oracle, problems, run

BACKEND, CPU = TritonKernels(), device_facts("cpu")
FP16_AND_FP32 = [DType.FP16, DType.FP32]
SAME = ((1, 1), (1, 1))
PLAIN = Case((2, 4, 7, 9), (4, 2, 3, 3), padding=SAME, groups=2)


def computed(candidate: Candidate, given: Operands) -> torch.Tensor:
    plan = BACKEND.build(candidate, CPU)
    workspace = torch.full((plan.workspace_bytes,), 0xFF, dtype=torch.uint8)
    given.out.fill_(float("nan"))
    assert plan(given.x, given.dy, out=given.out, workspace=workspace) is given.out
    return given.out


def some(problem: ConvProblem, parts: int, count: int) -> list[Candidate]:
    """A few of all, of different sizes and lanes."""
    found = all_patches(problem, parts)
    return found[:: -(-len(found) // count)]


@pytest.mark.parametrize(("dtype", "layouts"), [(DType.FP32, LAYOUTS[0]), (DType.FP16, LAYOUTS[1])])
@pytest.mark.parametrize("name", FEW)
def test_small_integers_come_out_exactly(name: str, dtype: DType, layouts: tuple[Layout, Layout]) -> None:
    problem = gradient(FEW[name], dtype, Layout.NCHW, *layouts)
    given = Operands.of(problem, "cpu", integers=True)
    expected = given.expected(problem).to(torch_dtype(dtype))
    found = offered(problem, CPU)
    assert found
    for candidate in found[:2]:
        assert torch.equal(computed(candidate, given), expected), candidate.id


@pytest.mark.parametrize("number", range(5))
@pytest.mark.parametrize("layout", [Layout.NCHW, Layout.NHWC])
def test_patches_handle_their_tails(number: int, layout: Layout) -> None:
    problem = ragged(number, DType.FP32, layout)
    given = Operands.of(problem, "cpu", integers=True)
    expected = given.expected(problem).float()
    for candidate in all_patches(problem, 2)[number::29]:
        assert torch.equal(computed(candidate, given), expected), candidate.id


@pytest.mark.parametrize("parts", [1, 2, 300])
def test_parts_add_up(parts: int) -> None:
    """Also where there are more of them than are read at a time, and where the last have nothing to sum."""
    problem = gradient(PLAIN, DType.FP16)
    given = Operands.of(problem, "cpu", integers=True)
    expected = given.expected(problem).half()
    candidate = all_patches(problem, parts)[-1]
    assert candidate.workspace_bytes == (4 * problem.w.numel * parts if parts > 1 else 0)
    assert torch.equal(computed(candidate, given), expected)


@pytest.mark.parametrize("parts", [1, 2])
@pytest.mark.parametrize("layout", ["nchw", "nhwc", "gaps"])
@pytest.mark.parametrize("name", ["depthwise 7x7, flipped", "causal"])
def test_the_gradient_is_written_wherever_the_weight_lies(name: str, layout: str, parts: int) -> None:
    problem = gradient(GROUPED[name], DType.FP32, Layout.NHWC if layout == "nhwc" else Layout.NCHW, *LAYOUTS[0])
    problem = with_gaps(problem) if layout == "gaps" else problem
    given = operands(problem, seed=1)
    for candidate in some(problem, parts, 2):
        plan = BACKEND.build(candidate, CPU)
        torch.testing.assert_close(run(plan, given).double(), oracle(problem, given), rtol=0, atol=0)


@pytest.mark.parametrize("layouts", MIXED)
def test_operands_may_lie_differently(layouts: tuple[Layout, Layout]) -> None:
    problem = gradient(PLAIN, DType.FP32, Layout.NCHW, *layouts)
    given = Operands.of(problem, "cpu", integers=True)
    for candidate in offered(problem, CPU)[:2]:
        assert torch.equal(computed(candidate, given), given.expected(problem).float()), candidate.id


@settings(max_examples=15)
@drawn(problems(least_images=1), st.sampled_from(FP16_AND_FP32), st.integers(1, 3), st.data())
def test_any_problem_that_is_served(drawn_problem: ConvProblem, dtype: DType, parts: int, data: st.DataObject) -> None:
    specs = {role: replace(getattr(drawn_problem, role), dtype=dtype) for role in "xwy"}
    problem = replace(drawn_problem, **specs).asking(Direction.BACKWARD_WEIGHT)
    if problem.rank > 2:
        assert "spatial dimensions, got 3" in str(refusal_reason(problem))
        return
    given = operands(problem, seed=2)
    expected = oracle(problem, given)
    for candidate in (offered(problem, CPU)[0], data.draw(st.sampled_from(all_patches(problem, parts)))):
        plan = BACKEND.build(candidate, CPU)
        torch.testing.assert_close(run(plan, given).double(), expected, rtol=0, atol=0, msg=candidate.id)


@pytest.mark.filterwarnings("ignore:invalid value encountered")
@pytest.mark.parametrize("dtype", FP16_AND_FP32)
@pytest.mark.parametrize("layouts", LAYOUTS)
def test_errors_on_every_kind_of_data_are_explained(layouts: tuple[Layout, Layout], dtype: DType) -> None:
    """Infinities and NaNs among them, in images that patches fill and in images that they do not."""
    problem = gradient(PLAIN, dtype, Layout.NCHW, *layouts)
    check = ErrorCheck(problem, "cpu")
    for candidate in some(problem, 2, 4):
        plan = BACKEND.build(candidate, CPU)
        errors = check.errors(lambda by_role, plan=plan: plan(by_role["x"], by_role["dy"]))
        assert absolute_objection(problem, candidate.arithmetic, errors, Policy()) is None, candidate.id


@pytest.mark.filterwarnings("ignore:invalid value encountered")
@pytest.mark.parametrize("value", [inf, -inf, nan])
@pytest.mark.parametrize("place", ["x", "dy"])
@pytest.mark.parametrize("layouts", LAYOUTS)
def test_what_is_not_finite_lands_where_it_belongs(layouts: tuple[Layout, Layout], place: str, value: float) -> None:
    """At an image's last pixel, which patches that reach beyond it read for pixels that are not there."""
    problem = gradient(Case((1, 3, 9, 11), (3, 1, 3, 3), groups=3), DType.FP32, Layout.NCHW, *layouts)
    given = Operands.of(problem, "cpu", integers=True)
    getattr(given, place)[0, 1, -1, -1] = value
    given.dy[given.dy == 0] = 1
    expected = given.expected(problem).float()
    assert not expected.isfinite().all()
    assert expected.isfinite().any()
    for candidate in some(problem, 1, 5):
        assert torch.equal(computed(candidate, given).nan_to_num(7.5), expected.nan_to_num(7.5)), candidate.id


def test_it_is_as_good_as_fp32() -> None:
    problem = gradient(Case((4, 2, 40, 40), (2, 1, 3, 3), padding=SAME, groups=2), DType.FP32)
    given = Operands.of(problem, "cpu", integers=False)
    expected = given.expected(problem)
    for candidate in offered(problem, CPU)[:2]:
        error = (computed(candidate, given).double() - expected).norm() / expected.norm()
        assert error < 2**-24 * sqrt(problem.reduction) / 4, candidate.id


def test_output_and_workspace_are_made_where_none_are_given() -> None:
    problem = gradient(PLAIN, DType.FP16, Layout.NCHW)
    given = Operands.of(problem, "cpu", integers=True)
    plan = BACKEND.build(all_patches(problem, 2)[-1], CPU)
    dw = plan(given.x, given.dy)
    assert dw.stride() == problem.w.strides
    assert torch.equal(dw, given.expected(problem).half())
