"""The kernel for few weights in Triton's interpreter, in a process of its own."""

from __future__ import annotations

from dataclasses import replace
from math import inf, nan, prod, sqrt

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
from convwright.backends.triton.few_weights.offers import Patch
from convwright.backends.triton.parts.sums import sum_call
from convwright.core.candidate import Candidate
from convwright.core.direction import Direction, Role
from convwright.core.dtype import DType
from convwright.core.error_rule import absolute_objection
from convwright.core.policy import Policy
from convwright.core.problem import ConvProblem
from convwright.core.tensor_spec import Layout
from convwright.errors import BadInput
from convwright.measuring.checking.error import ErrorCheck
from convwright.measuring.hardware.machine import device_facts
from convwright.tensors import empty, torch_dtype
from problem_space import ahead, operands, oracle, problems, run

BACKEND, CPU = TritonKernels(), device_facts("cpu")
FP16_AND_FP32 = [DType.FP16, DType.FP32]
SAME = ((1, 1), (1, 1))
PLAIN = Case((2, 4, 7, 9), (4, 2, 3, 3), padding=SAME, groups=2)
SMALL = Case((2, 2, 6, 5), (2, 1, 2, 2), padding=SAME, groups=2)


def computed(candidate: Candidate, given: Operands) -> torch.Tensor:
    plan = BACKEND.build(candidate, CPU)
    workspace = torch.full((plan.workspace_bytes,), 0xFF, dtype=torch.uint8)
    given.out.fill_(float("nan"))
    assert plan(given.x, given.dy, out=given.out, workspace=workspace) is given.out
    return given.out


def some(problem: ConvProblem, parts: int, count: int) -> list[Candidate]:
    """A few of all, of different sizes and with so many lanes that the interpreter takes few steps."""
    found = [each for each in all_patches(problem, parts) if Patch.of(each).lanes >= 128]
    return found[len(found) // count // 2 :: -(-len(found) // count)]


@pytest.mark.parametrize(("number", "name"), [*enumerate(FEW)])
def test_small_integers_come_out_exactly(number: int, name: str) -> None:
    dtype = FP16_AND_FP32[number // 2 % 2]
    problem = gradient(FEW[name], dtype, Layout.NCHW, *LAYOUTS[number % 2])
    given = Operands.of(problem, "cpu", integers=True)
    expected = given.expected(problem).to(torch_dtype(dtype))
    candidate = min(offered(problem, CPU), key=lambda each: Patch.of(each).parts)  # of few programs
    assert torch.equal(computed(candidate, given), expected), candidate.id


@pytest.mark.parametrize("number", range(10))
def test_patches_handle_their_tails(number: int) -> None:
    problem = ragged(number, DType.FP32, (Layout.NCHW, Layout.NHWC)[number % 2])
    given = Operands.of(problem, "cpu", integers=True)
    expected = given.expected(problem).float()
    for candidate in some(problem, 2, 10)[number::10]:
        assert torch.equal(computed(candidate, given), expected), candidate.id


@pytest.mark.parametrize("parts", [1, 2])
def test_parts_add_up(parts: int) -> None:
    problem = gradient(PLAIN, DType.FP16)
    given = Operands.of(problem, "cpu", integers=True)
    expected = given.expected(problem).half()
    candidate = some(problem, parts, 1)[0]
    assert candidate.workspace_bytes == (4 * problem.w.numel * parts if parts > 1 else 0)
    assert torch.equal(computed(candidate, given), expected)


@pytest.mark.parametrize("parts", [2, 7, 33, 300, 1046])
def test_any_number_of_parts_is_added(parts: int) -> None:
    """Also where there are more of them than are read at a time."""
    problem = gradient(replace(PLAIN, flip=parts == 7), DType.FP16, Layout.NCHW)
    sums = torch.randint(-2, 3, (parts, 4, 3, 3, 2)).float()
    dw = torch.full(problem.w.shape, nan, dtype=torch.float16)
    sum_call(problem, parts).interpreted(sums, dw)
    expected = sums.sum(0).permute(0, 3, 1, 2)
    assert torch.equal(dw, (expected.flip(2, 3) if problem.flip else expected).half())


@pytest.mark.parametrize(
    ("name", "layout", "parts"),
    [
        ("depthwise 7x7, flipped", "nchw", 1), ("depthwise 7x7, flipped", "nhwc", 2),
        ("depthwise 7x7, flipped", "gaps", 1), ("causal", "nchw", 2), ("causal", "nhwc", 1), ("causal", "gaps", 1),
        ("causal", "gaps", 2),
    ],
)  # fmt: skip
def test_the_gradient_is_written_wherever_the_weight_lies(name: str, layout: str, parts: int) -> None:
    problem = gradient(GROUPED[name], DType.FP32, Layout.NHWC if layout == "nhwc" else Layout.NCHW, *LAYOUTS[0])
    problem = with_gaps(problem) if layout == "gaps" else problem
    given = operands(problem, seed=1)
    for candidate in some(problem, parts, 1):
        plan = BACKEND.build(candidate, CPU)
        torch.testing.assert_close(run(plan, given).double(), oracle(problem, given), rtol=0, atol=0)


@pytest.mark.parametrize("layouts", MIXED)
def test_operands_may_lie_differently(layouts: tuple[Layout, Layout]) -> None:
    problem = gradient(PLAIN, DType.FP32, Layout.NCHW, *layouts)
    given = Operands.of(problem, "cpu", integers=True)
    for candidate in offered(problem, CPU)[:1]:
        assert torch.equal(computed(candidate, given), given.expected(problem).float()), candidate.id


@settings(max_examples=7)
@drawn(problems(least_images=1), st.sampled_from(FP16_AND_FP32), st.integers(1, 3), st.data())
def test_any_problem_that_is_served(drawn_problem: ConvProblem, dtype: DType, parts: int, data: st.DataObject) -> None:
    specs = {role: replace(getattr(drawn_problem, role), dtype=dtype) for role in "xwy"}
    problem = replace(drawn_problem, **specs).asking(Direction.BACKWARD_WEIGHT)
    given = operands(problem, seed=2)
    expected = oracle(problem, given)
    for candidate in (offered(problem, CPU)[0], data.draw(st.sampled_from(some(problem, parts, 9)))):
        plan = BACKEND.build(candidate, CPU)
        torch.testing.assert_close(run(plan, given).double(), expected, rtol=0, atol=0, msg=candidate.id)


@pytest.mark.parametrize("parts", [1, 3])
@pytest.mark.parametrize(
    "text",
    [
        "g4mb2ic4ih7iw9oc8kh3ph1 ep:bias+relu",
        "g2mb1ic4ih6iw9oc4kh3kw2ph1pw1dh1 ep:bias+silu tag:nhwc",
        "g6mb2ic6iw30oc6kw4pw3sw2 ep:gelu",
        "ic4ih5iw9oc3kh3pw2 ep:bias",
        "g2mb1ic2id4ih3iw9oc4kd3kh2kw3pd2pw1sd2 ep:bias+relu",
    ],
)
def test_what_stands_ahead_of_it(text: str, parts: int) -> None:
    """An activation's derivative, the bias's gradient, or both; where images fill no patch, too."""
    problem = ConvProblem.parse(f"{text} dir:backward_weight")
    given = operands(problem, 1, integers=False)
    for candidate in (offered(problem, CPU)[0], *some(problem, parts, 2)):
        given.pop(Role.DB, None)
        got = run(BACKEND.build(candidate, CPU), given)
        torch.testing.assert_close(got.double(), oracle(problem, given), rtol=2e-6, atol=2e-6, msg=candidate.id)
        if problem.epilogue.bias:
            db = ahead(problem, given).sum([0, *range(2, problem.rank + 2)])
            torch.testing.assert_close(given[Role.DB].double(), db, rtol=2e-6, atol=2e-6, msg=candidate.id)


@pytest.mark.parametrize("parts", [1, 2])
def test_where_relu_is_zero_an_infinity_is_nothing(parts: int) -> None:
    problem = ConvProblem.parse("g2ic2ih6iw5oc2kh2ph1 dir:backward_weight ep:bias+relu")
    given = operands(problem, 1)
    given[Role.Z].fill_(-1.0)
    given[Role.DY].fill_(inf)
    for candidate in some(problem, parts, 1):
        assert (run(BACKEND.build(candidate, CPU), given) == 0).all()
        assert (given[Role.DB] == 0).all()


def test_what_stands_ahead_has_to_be_given() -> None:
    problem = ConvProblem.parse("g2ic2ih6oc2kh2 dir:backward_weight ep:bias+relu")
    given = operands(problem, 1)
    plan = BACKEND.build(offered(problem, CPU)[0], CPU)
    with pytest.raises(BadInput, match="needs `db` and `z` besides its operands, got `z`"):
        plan(given[Role.X], given[Role.DY], z=given[Role.Z])


@pytest.mark.filterwarnings("ignore:invalid value encountered")
@pytest.mark.parametrize(("dtype", "layouts"), [(DType.FP32, LAYOUTS[0]), (DType.FP16, LAYOUTS[1])])
def test_errors_on_every_kind_of_data_are_explained(dtype: DType, layouts: tuple[Layout, Layout]) -> None:
    """Infinities and NaNs among them, in images that patches do not fill."""
    problem = gradient(SMALL, dtype, Layout.NCHW, *layouts)
    check = ErrorCheck(problem, "cpu")
    for candidate in some(problem, 2, 1):
        plan = BACKEND.build(candidate, CPU)
        errors = check.errors(lambda by_role, plan=plan: plan(by_role["x"], by_role["dy"]))
        assert absolute_objection(problem, candidate.arithmetic, errors, Policy()) is None, candidate.id


@pytest.mark.filterwarnings("ignore:invalid value encountered")
@pytest.mark.parametrize(
    ("layouts", "place", "value"), [(LAYOUTS[0], "x", inf), (LAYOUTS[1], "x", nan), (LAYOUTS[1], "dy", -inf)]
)
def test_what_is_not_finite_lands_where_it_belongs(layouts: tuple[Layout, Layout], place: str, value: float) -> None:
    """At an image's last pixel, which patches that reach beyond it read for pixels that are not there."""
    problem = gradient(replace(SMALL, padding=((0, 0), (0, 0))), DType.FP32, Layout.NCHW, *layouts)
    given = Operands.of(problem, "cpu", integers=True)
    getattr(given, place)[0, 1, -1, -1] = value
    given.dy[given.dy == 0] = 1
    expected = given.expected(problem).float()
    assert not expected.isfinite().all()
    assert expected.isfinite().any()
    for candidate in some(problem, 1, 1):
        assert torch.equal(computed(candidate, given).nan_to_num(7.5), expected.nan_to_num(7.5)), candidate.id


def test_it_is_as_good_as_fp32() -> None:
    problem = gradient(Case((2, 1, 40, 40), (1, 1, 2, 2)), DType.FP32)
    given = Operands.of(problem, "cpu", integers=False)
    expected = given.expected(problem)
    for candidate in offered(problem, CPU)[:1]:
        error = (computed(candidate, given).double() - expected).norm() / expected.norm()
        assert error < 2**-24 * sqrt(problem.reduction) / 4, candidate.id


def test_output_and_workspace_are_made_where_none_are_given() -> None:
    problem = gradient(PLAIN, DType.FP16, Layout.NCHW)
    given = Operands.of(problem, "cpu", integers=True)
    plan = BACKEND.build(some(problem, 2, 1)[0], CPU)
    dw = plan(given.x, given.dy)
    assert dw.stride() == problem.w.strides
    assert torch.equal(dw, given.expected(problem).half())


@pytest.mark.parametrize("parts", [2, 5, 8, 9])
@pytest.mark.parametrize("text", ["mb2ic3ih9oc4kh3", "mb2ic20ih9oc7kh5kw2 tag:nhwc", "g2mb2ic6id5ih9oc4kd2kh3kw3"])
def test_sums_are_added_in_whichever_order_suits_and_the_biases_behind_them(text: str, parts: int) -> None:
    asked = ConvProblem.parse(f"{text} dir:backward_weight ep:bias")
    for problem in (asked, replace(asked, flip=True)):
        K, C, *taps = problem.w.shape
        generator = torch.Generator().manual_seed(parts)
        sums = torch.randint(-9, 9, (parts, K * prod(taps) * C + K), generator=generator).float()
        total = sums.sum(0)
        expected = total[:-K].view(K, *taps, C).movedim(-1, 1)
        dw, db = empty(problem.w, "cpu"), torch.empty(K)
        sum_call(problem, parts).interpreted(sums, dw, db)
        assert torch.equal(dw, expected.flip(tuple(range(2, expected.ndim))) if problem.flip else expected)
        assert torch.equal(db, total[-K:])
