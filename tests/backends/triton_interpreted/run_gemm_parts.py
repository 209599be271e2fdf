"""The implicit GEMM with its sum in parts in Triton's interpreter, in a process of its own."""

from __future__ import annotations

import pytest
import torch

pytest.importorskip("triton")

from backends.triton_interpreted.cases import CASES, PLANES, VOLUMES, WIDE_GROUPS, Case, Operands, exact, oracle
from backends.triton_interpreted.gemm_parts_cases import of_parts
from convwright.backends.triton.backend import TritonKernels
from convwright.core.candidate import Candidate
from convwright.core.dtype import DType
from convwright.core.problem import ConvProblem
from convwright.core.tensor_spec import Layout
from convwright.errors import BadInput
from convwright.measuring.hardware.machine import device_facts

BACKEND, CPU = TritonKernels(), device_facts("cpu")
SAME = ((1, 1), (1, 1))
# In steps of 32 one tap has 2 of them, and the second a tail: 18 steps, which 5 parts do not divide.
LONG = Case((1, 40, 3, 4), (20, 40, 3, 3), padding=SAME, epilogue="residual+bias+relu")


def run(candidate: Candidate, given: Operands) -> torch.Tensor:
    """On an output and a workspace full of NaN."""
    plan = BACKEND.build(candidate, CPU)
    workspace = torch.full((plan.workspace_bytes,), 0xFF, dtype=torch.uint8)
    given.out.fill_(float("nan"))
    assert plan(given.x, plan.prepare(given.w), given.bias, given.residual, given.out, workspace) is given.out
    return given.out


def come_out_exactly(problem: ConvProblem, candidates: list[Candidate]) -> None:
    given = Operands.of(problem, "cpu", integers=True)
    expected = exact(oracle(problem, given), problem)
    for candidate in candidates:
        assert torch.equal(run(candidate, given), expected), candidate.id


@pytest.mark.parametrize(("dtype", "parts"), [(DType.FP16, 2), (DType.FP16, 3), (DType.FP32, 5)])
def test_parts_of_every_algorithm_add_up(dtype: DType, parts: int) -> None:
    problem = LONG.problem(dtype)
    candidates = of_parts(problem, parts)[:: 1 if dtype is DType.FP16 else 2]
    assert all(each.workspace_bytes == parts * 12 * 20 * 4 for each in candidates)
    come_out_exactly(problem, candidates)


@pytest.mark.parametrize(
    ("name", "parts", "place"),
    [
        ("pointwise, strided", 2, 0), ("3x3 without padding", 5, 1), ("odd channels", 3, 3), ("dilated", 3, 1),
        ("one channel in and out", 2, 0), ("asymmetric padding", 2, 6), ("flipped", 3, 4), ("1-D", 2, 2),
        ("slice of a wider buffer", 5, 0), ("many output channels", 2, 5),
        *((name, 3, i % 2) for i, name in enumerate(VOLUMES)),
        *((name, 2, 1 - i % 2) for i, name in enumerate(WIDE_GROUPS)),
    ],
)  # fmt: skip
def test_small_integers_come_out_exactly(name: str, parts: int, place: int) -> None:
    problem = (CASES | VOLUMES | WIDE_GROUPS)[name].problem(DType.FP16 if place < 2 else DType.FP32)
    come_out_exactly(problem, of_parts(problem, parts)[place : place + 1])


@pytest.mark.parametrize(
    ("layouts", "name", "parts", "dtype"),
    [
        (PLANES[0], "slice of a wider buffer", 5, DType.FP16), (PLANES[0], "odd channels", 3, DType.FP32),
        (PLANES[1], "1-D", 2, DType.FP32), (PLANES[2], "odd channels", 2, DType.FP16),
    ],
)  # fmt: skip
def test_operands_may_lie_in_planes(layouts: tuple[Layout, Layout], name: str, parts: int, dtype: DType) -> None:
    problem = CASES[name].problem(dtype, *layouts)
    come_out_exactly(problem, of_parts(problem, parts)[:1])


@pytest.mark.parametrize("epilogue", ["none", "bias", "residual", "residual+bias", "residual+bias+hardswish"])
def test_the_epilogue_follows_the_sum_of_all_parts(epilogue: str) -> None:
    problem = Case((2, 12, 3, 4), (9, 12, 2, 2), epilogue=epilogue).problem(DType.FP32)
    given = Operands.of(problem, "cpu", integers=True)
    expected = oracle(problem, given)
    (candidate, *_) = of_parts(problem, 2)
    torch.testing.assert_close(run(candidate, given).double(), expected, rtol=2e-7, atol=0)


def test_parts_without_a_step_add_nothing() -> None:
    problem = CASES["pointwise"].problem(DType.FP32)
    come_out_exactly(problem, of_parts(problem, 3)[:1])


def test_more_parts_than_are_loaded_at_once_add_up() -> None:
    problem = Case((1, 64, 3, 3), (8, 64, 3, 3), padding=SAME, epilogue="bias").problem(DType.FP16)
    come_out_exactly(problem, of_parts(problem, 36)[1:])


@pytest.mark.parametrize("bits", [0x7F800000, 0xFF800000, 0x7FC00000, 0x7FFFFFFF])
@pytest.mark.parametrize("place", ["x", "w"])
@pytest.mark.filterwarnings("ignore:invalid value encountered")
def test_what_is_not_finite_lands_where_it_belongs(bits: int, place: str) -> None:
    """In one part of the sum only, and so that some outputs do not meet it."""
    problem = Case((1, 24, 4, 4), (10, 24, 3, 3), padding=SAME).problem(DType.FP32)
    given = Operands.of(problem, "cpu", integers=False)
    getattr(given, place)[0, 3, 1, 1] = torch.tensor(bits, dtype=torch.uint32).view(torch.float32)
    expected = oracle(problem, given).float()
    assert expected.isfinite().any()
    assert not expected.isfinite().all()
    candidate = of_parts(problem, 3)[0 if place == "x" else 2]
    assert candidate.algorithm == ("implicit-gemm-3xtf32" if place == "x" else "implicit-gemm-3xtf32-packed")
    assert torch.allclose(run(candidate, given), expected, rtol=1e-5, atol=1e-5, equal_nan=True)


@pytest.mark.filterwarnings("ignore:invalid value encountered")
def test_infinities_of_both_signs_in_two_parts_make_nan() -> None:
    problem = Case((1, 128, 1, 2), (3, 128, 1, 1)).problem(DType.FP32)
    given = Operands.of(problem, "cpu", integers=True)
    given.w.fill_(1)
    given.x[0, 0, 0, 0], given.x[0, 127, 0, 0] = float("inf"), float("-inf")
    given.x[0, 0, 0, 1] = float("inf")
    for candidate in of_parts(problem, 4):
        y = run(candidate, given)
        assert y[0, :, 0, 0].isnan().all(), candidate.id
        assert y[0, :, 0, 1].eq(float("inf")).all(), candidate.id


def test_a_sum_in_parts_is_as_good_as_fp32() -> None:
    problem = Case((1, 64, 4, 4), (16, 64, 3, 3), padding=SAME).problem(DType.FP32)
    given = Operands.of(problem, "cpu", integers=False)
    expected = oracle(problem, given)
    for candidate in of_parts(problem, 5)[:3:2]:
        error = float((run(candidate, given).double() - expected).norm() / expected.norm())
        assert error < 4e-7, f"{candidate.id}: {error:.2e}"


def test_output_and_workspace_are_made_where_none_are_given() -> None:
    problem = CASES["1-D"].problem(DType.FP16, Layout.NHWC, Layout.NCHW)
    given = Operands.of(problem, "cpu", integers=True)
    plan = BACKEND.build(of_parts(problem, 2)[0], CPU)
    y = plan(given.x, plan.prepare(given.w), given.bias)
    assert y.stride() == problem.y.strides
    assert torch.equal(y, exact(oracle(problem, given), problem))


def test_operands_that_do_not_fit_the_epilogue_are_named() -> None:
    problem = CASES["3x3"].problem(DType.FP16)
    given = Operands.of(problem, "cpu", integers=True)
    plan = BACKEND.build(of_parts(problem, 2)[0], CPU)
    with pytest.raises(BadInput, match=r"bias\+relu, got neither bias nor residual"):
        plan(given.x, plan.prepare(given.w))
