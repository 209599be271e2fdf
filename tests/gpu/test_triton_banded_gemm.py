"""Every tile of products with band matrices computes right on the GPU at hand."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from math import inf, nan

import pytest
import torch
import torch.nn.functional as F

import convwright as cw
from backends.triton_interpreted import input_gradient_cases
from backends.triton_interpreted.banded_gemm_cases import SERVED, TURNED, convolving_only, every_tile, offered
from backends.triton_interpreted.cases import Case, Operands, exact, oracle
from backends.triton_interpreted.input_gradient_cases import gradient
from convwright.backends.triton.backend import TritonKernels
from convwright.core.candidate import Candidate
from convwright.core.device import DeviceFacts
from convwright.core.direction import Role
from convwright.core.dtype import DType
from convwright.core.error_rule import error_objection
from convwright.core.plan import Launchable
from convwright.core.policy import Objective, Policy
from convwright.core.problem import ConvProblem
from convwright.core.tensor_spec import Layout
from convwright.measuring.checking.error import ErrorCheck
from gpu.right import relative

pytest.importorskip("triton")
pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device, PyTorch sees none"),
]

BACKEND = TritonKernels()
DTYPES = [DType.FP16, DType.BF16]
LARGEST_ERROR = {DType.FP16: 4e-4, DType.BF16: 3e-3}
LAYERS = {
    "7x7": Case((4, 32, 56, 56), (32, 1, 7, 7), padding=((3, 3), (3, 3)), epilogue="bias+gelu", groups=32),
    "31x31": Case((2, 16, 56, 56), (16, 1, 31, 31), padding=((15, 15), (15, 15)), groups=16),
    "51x5": Case((2, 16, 55, 55), (16, 1, 51, 5), padding=((25, 25), (2, 2)), epilogue="bias+relu", groups=16),
    "a long row": Case((4, 8, 4096), (8, 1, 64), (1,), ((63, 0),), (1,), "bias+silu", groups=8),
}


def in_planes(case: Case, dtype: DType) -> ConvProblem:
    return case.problem(dtype, Layout.NCHW, Layout.NCHW)


def run(candidate: Candidate, device: DeviceFacts, given: Operands) -> torch.Tensor:
    return given.computed(BACKEND.build(candidate, device))


@pytest.mark.parametrize(("turn", "name"), list(enumerate(SERVED)))
def test_small_integers_come_out_exactly(turn: int, name: str, live: DeviceFacts) -> None:
    problem = in_planes(SERVED[name], DTYPES[turn % 2])
    given = Operands.of(problem, "cuda", integers=True)
    expected = exact(oracle(problem, given), problem)
    for candidate in every_tile(problem)[turn % 3 :: 3]:
        assert torch.equal(run(candidate, live, given), expected), candidate.id


@pytest.mark.parametrize(("turn", "name"), list(enumerate(TURNED)))
def test_gradients_of_inputs_come_out_exactly(turn: int, name: str, live: DeviceFacts) -> None:
    problem = gradient(TURNED[name], DTYPES[turn % 2], Layout.NCHW, Layout.NCHW)
    given = input_gradient_cases.Operands.of(problem, "cuda", integers=True)
    expected = given.expected(problem).to(given.out.dtype)
    for candidate in offered(problem, live)[::2]:
        assert torch.equal(given.computed(BACKEND.build(candidate, live)), expected), candidate.id


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", LAYERS)
def test_layers_are_right_and_have_equal_bits_from_run_to_run(name: str, dtype: DType, live: DeviceFacts) -> None:
    problem = in_planes(LAYERS[name], dtype)
    given = Operands.of(problem, "cuda", integers=False)
    expected = oracle(problem, given)
    for candidate in offered(problem, live)[::2]:
        y = run(candidate, live, given).clone()
        error = relative(y, expected)
        assert error <= LARGEST_ERROR[dtype], f"{candidate.id}: {error:.2e}"
        for _ in range(3):
            assert torch.equal(run(candidate, live, given), y), candidate.id


@pytest.mark.parametrize("dtype", DTYPES)
def test_errors_keep_the_rule_on_every_kind_of_data(dtype: DType, live: DeviceFacts) -> None:
    """Beside PyTorch's own call, infinities and NaNs among the data."""
    problem = in_planes(replace(LAYERS["31x31"], x=(2, 16, 24, 24)), dtype)
    check = ErrorCheck(problem, "cuda")
    baseline = check.errors(lambda given: F.conv2d(given[Role.X], given[Role.W], padding=15, groups=16))
    for candidate in offered(problem, live)[:3]:
        plan = BACKEND.build(candidate, live)
        errors = check.errors(lambda given, plan=plan: plan(given[Role.X], plan.prepare(given[Role.W])))
        assert error_objection(problem, errors, baseline, Policy()) is None, candidate.id


@pytest.mark.parametrize("value", [inf, -inf, nan])
@pytest.mark.parametrize(
    ("name", "padded"),
    [
        ("7x7", True), ("31x31", True), ("two outputs each", False), ("7x6, strided and dilated", False),
        ("a long row", False),
    ],
)  # fmt: skip
def test_what_is_not_finite_lands_where_it_belongs(name: str, padded: bool, value: float, live: DeviceFacts) -> None:
    """What a block reads beside an infinity are zeros of its band."""
    problem = in_planes(convolving_only(name, padded=padded), DType.FP16)
    given = Operands.of(problem, "cuda", integers=True)
    given.w[given.w == 0] = 1
    given.x[-1, 1].view(-1)[problem.x.shape[-1] // 2] = value
    expected = exact(oracle(problem, given), problem)
    assert 0 < expected.isfinite().logical_not().sum() < expected.numel()
    for candidate in offered(problem, live)[::2]:
        assert torch.equal(run(candidate, live, given).nan_to_num(nan=5e4), expected.nan_to_num(nan=5e4)), candidate.id


def test_offsets_beyond_32_bits(live: DeviceFacts, much_memory: Callable[[int], None]) -> None:
    """Images of one channel that lie far apart in buffers of 4 GiB."""
    images, apart = 5, 2**29
    problem = in_planes(Case((images, 1, 20, 20), (1, 1, 7, 7), padding=((3, 3), (3, 3))), DType.FP16)
    strides = (apart, *problem.x.strides[1:])
    problem = replace(problem, x=replace(problem.x, strides=strides), y=replace(problem.y, strides=strides))
    much_memory(5 * 2**30 * 2)
    given = Operands.of(problem, "cuda", integers=True)
    expected = exact(oracle(problem, given), problem)
    assert torch.equal(run(offered(problem, live)[0], live, given), expected)


def test_a_plan_can_be_captured_in_a_graph_and_runs_on_addresses(live: DeviceFacts) -> None:
    problem = in_planes(replace(LAYERS["31x31"], x=(2, 16, 24, 24)), DType.FP16)
    given = Operands.of(problem, "cuda", integers=True)
    plan = BACKEND.build(offered(problem, live)[0], live)
    expected = given.computed(plan).clone()
    packed = plan.prepare(given.w)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        plan(given.x, packed, out=given.out)
    given.out.fill_(nan)
    graph.replay()
    assert torch.equal(given.out, expected)
    given.out.fill_(nan)
    assert isinstance(plan, Launchable)
    stream = torch.cuda.current_stream().cuda_stream
    plan.launch(given.x.data_ptr(), packed.data_ptr(), 0, 0, given.out.data_ptr(), 0, stream)
    assert torch.equal(given.out, expected)


@pytest.mark.parametrize("layout", ["nchw", "nhwc"])
def test_a_search_finds_it_for_a_layer_and_its_gradient(layout: str) -> None:
    """In so long a time that compilers come to an end beside other tests."""
    text, policy = f"g64mb8ic64ih28oc64kh31ph15 dt:fp16 tag:{layout}", Policy(objective=Objective.DEVICE_TIME)
    for direction in ("forward", "backward_data"):
        found = cw.find(f"{text} dir:{direction}", device="cuda", policy=policy, budget_us=3e7)
        said = [(verdict.finding.candidate.id, verdict.reason) for verdict in found.verdicts]
        assert found.choice is not None
        assert "triton/banded-gemm" in found.choice.candidate.id, said
