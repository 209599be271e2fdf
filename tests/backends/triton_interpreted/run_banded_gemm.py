"""Products with band matrices in Triton's interpreter, in a process of its own."""

from __future__ import annotations

from dataclasses import replace
from math import inf, nan

import pytest
import torch

pytest.importorskip("triton")

from backends.triton_interpreted import input_gradient_cases
from backends.triton_interpreted.banded_gemm_cases import (
    ALGORITHM,
    SAME_7X7,
    SERVED,
    TURNED,
    convolving_only,
    every_tile,
    offered,
)
from backends.triton_interpreted.cases import Case, Operands, exact, listed, oracle
from backends.triton_interpreted.input_gradient_cases import gradient
from convwright.backends.triton.backend import TritonKernels
from convwright.core.candidate import Candidate, Refusal
from convwright.core.dtype import DType
from convwright.core.problem import ConvProblem
from convwright.core.tensor_spec import Layout, TensorSpec
from convwright.errors import BadInput
from convwright.measuring.hardware.machine import device_facts

BACKEND, CPU = TritonKernels(), device_facts("cpu")
PLAIN = Case((2, 2, 9, 10), (2, 1, 7, 7), padding=SAME_7X7, groups=2)


def run(candidate: Candidate, given: Operands) -> torch.Tensor:
    return given.computed(BACKEND.build(candidate, CPU))


def in_planes(case: Case) -> ConvProblem:
    return case.problem(DType.FP16, Layout.NCHW, Layout.NCHW)


@pytest.mark.parametrize("name", SERVED)
def test_small_integers_come_out_exactly(name: str) -> None:
    problem = in_planes(SERVED[name])
    given = Operands.of(problem, "cpu", integers=True)
    expected = exact(oracle(problem, given), problem)
    for candidate in offered(problem, CPU)[:: 2 if problem.y.numel < 2000 else 4]:
        assert torch.equal(run(candidate, given), expected), candidate.id


@pytest.mark.parametrize("name", TURNED)
def test_gradients_of_inputs_come_out_exactly(name: str) -> None:
    problem = gradient(TURNED[name], DType.FP16, Layout.NCHW, Layout.NCHW)
    given = input_gradient_cases.Operands.of(problem, "cpu", integers=True)
    expected = given.expected(problem).half()
    for candidate in offered(problem, CPU)[::2]:
        assert torch.equal(given.computed(BACKEND.build(candidate, CPU)), expected), candidate.id


@pytest.mark.parametrize("turn", range(4))
def test_every_tile_handles_its_tails(turn: int) -> None:
    problem = in_planes(SERVED["7x6, strided and dilated"])
    given = Operands.of(problem, "cpu", integers=True)
    expected = exact(oracle(problem, given), problem)
    tiles = every_tile(problem)[turn::4]
    assert tiles
    for candidate in tiles:
        assert torch.equal(run(candidate, given), expected), candidate.id


@pytest.mark.filterwarnings("ignore:invalid value encountered", "ignore:overflow encountered")
@pytest.mark.parametrize(
    ("name", "padded", "value"),
    [
        ("7x7", True, inf),
        ("two outputs each", False, -inf),
        ("a long row", False, nan),
        ("7x6, strided and dilated", False, inf),
    ],
)
def test_what_is_not_finite_lands_where_it_belongs(name: str, padded: bool, value: float) -> None:
    """What a block reads beside an infinity are zeros of its band."""
    problem = in_planes(convolving_only(name, padded=padded))
    given = Operands.of(problem, "cpu", integers=True)
    given.w[given.w == 0] = 1
    given.x[-1, 1].view(-1)[problem.x.shape[-1] // 2] = value
    expected = exact(oracle(problem, given), problem)
    assert 0 < expected.isfinite().logical_not().sum() < expected.numel()
    for candidate in offered(problem, CPU)[::5]:
        y = run(candidate, given)
        assert torch.equal(y.nan_to_num(nan=5e4), expected.nan_to_num(nan=5e4)), candidate.id


@pytest.mark.filterwarnings("ignore:invalid value encountered", "ignore:overflow encountered")
def test_an_infinite_tap_meets_what_it_reads() -> None:
    problem = in_planes(replace(PLAIN, padding=((0, 0), (0, 0))))
    given = Operands.of(problem, "cpu", integers=True)
    given.x[given.x == 0] = 1
    given.w[1, 0, 2, 3] = inf
    expected = exact(oracle(problem, given), problem)
    assert torch.equal(run(offered(problem, CPU)[0], given), expected)


def test_a_weight_may_lie_in_any_order() -> None:
    problem = in_planes(SERVED["9x5, flipped"])
    given = Operands.of(problem, "cpu", integers=True)
    lying = given.w.permute(3, 2, 0, 1).contiguous().permute(2, 3, 1, 0)
    turned = replace(problem, w=TensorSpec(problem.w.shape, DType.FP16, lying.stride()))
    y = run(offered(turned, CPU)[0], replace(given, w=lying))
    assert torch.equal(y, exact(oracle(problem, given), problem))


def test_operands_that_do_not_fit_the_epilogue_are_named() -> None:
    problem = in_planes(replace(PLAIN, epilogue="bias+relu"))
    given = Operands.of(problem, "cpu", integers=True)
    plan = BACKEND.build(offered(problem, CPU)[0], CPU)
    with pytest.raises(BadInput, match=r"bias\+relu, got neither bias nor residual"):
        plan(given.x, plan.prepare(given.w))


def test_the_interpreter_is_not_asked_for_bf16() -> None:
    (offer,) = listed(ALGORITHM, PLAIN.problem(DType.BF16, Layout.NCHW, Layout.NCHW), CPU)
    assert isinstance(offer, Refusal)
    assert "bf16" in offer.reason
