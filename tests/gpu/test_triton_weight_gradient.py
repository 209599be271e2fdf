"""Every configuration of the weight's gradient computes right on the GPU at hand."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from torch.nn import functional as F

import convwright as cw
from backends.triton_interpreted.cases import Case
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
from convwright.core.candidate import Candidate
from convwright.core.device import DeviceFacts
from convwright.core.direction import Role
from convwright.core.dtype import Arithmetic, DType
from convwright.core.error_rule import error_objection
from convwright.core.policy import Policy
from convwright.core.problem import ConvProblem
from convwright.core.tensor_spec import Layout
from convwright.measuring.checking.error import ErrorCheck
from convwright.tensors import torch_dtype
from gpu.own_kernels import candidates
from gpu.right import relative

pytest.importorskip("triton")
pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device, PyTorch sees none"),
]

BACKEND = TritonKernels()
SAME = ((1, 1), (1, 1))
LAYERS = {
    "ResNet 3x3": Case((4, 256, 14, 14), (256, 256, 3, 3), padding=SAME),
    "ResNet 1x1": Case((4, 256, 14, 14), (1024, 256, 1, 1)),
    "ResNet stem": Case((2, 3, 224, 224), (64, 3, 7, 7), (2, 2), ((3, 3), (3, 3))),
    "ResNeXt 3x3": Case((4, 256, 28, 28), (256, 8, 3, 3), padding=SAME, groups=32),
    "C3D 3x3x3": Case((2, 64, 8, 28, 28), (64, 64, 3, 3, 3), (1, 1, 1), (SAME[0],) * 3, (1, 1, 1)),
}
DTYPES = [DType.FP16, DType.BF16, DType.FP32]
LARGEST_ERROR = {
    Arithmetic.FP16_ACC32: 6e-4,
    Arithmetic.BF16_ACC32: 5e-3,
    Arithmetic.TF32: 2e-3,
    Arithmetic.TF32X3: 1e-6,
}


def some(name: str, problem: ConvProblem, device: DeviceFacts) -> list[Candidate]:
    """All that are offered for a layer, and every fourth for a small problem: each kernel has to be compiled."""
    return candidates(ALGORITHM, problem, device)[:: 1 if name in LAYERS else 4]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", [*NAMES, *LAYERS])
def test_small_integers_come_out_exactly(name: str, dtype: DType, live: DeviceFacts) -> None:
    problem = gradient((ALL_CASES | LAYERS)[name], dtype)
    given = Operands.of(problem, "cuda", integers=True)
    expected = given.expected(problem).to(torch_dtype(dtype))
    for candidate in some(name, problem, live):
        assert torch.equal(given.computed(BACKEND.build(candidate, live)), expected), candidate.id


# In sixths, since each of them has to be compiled.
@pytest.mark.parametrize(("parts", "first"), [(1, 0), (3, 1), (1, 2), (3, 3), (1, 4), (3, 5)])
@pytest.mark.parametrize("dtype", DTYPES)
def test_every_tile_handles_its_tails(dtype: DType, parts: int, first: int, live: DeviceFacts) -> None:
    plain = Case((3, 70, 9, 18), (35, 70, 2, 1), padding=((1, 0), (0, 0)), stride=(2, 2))
    grouped = replace(plain, x=(3, 140, 9, 18), w=(70, 70, 2, 1), groups=2)
    problem = gradient(grouped if first % 2 else plain, dtype)
    given = Operands.of(problem, "cuda", integers=True)
    expected = given.expected(problem).to(torch_dtype(dtype))
    for candidate in all_tiles(problem, parts)[first::6]:
        assert torch.equal(given.computed(BACKEND.build(candidate, live)), expected), candidate.id


@pytest.mark.parametrize("name", ["flipped", "1-D", "ResNet 3x3", "one plane of a volume", "groups of a volume"])
def test_the_gradient_is_written_wherever_the_weight_lies(name: str, live: DeviceFacts) -> None:
    dense = gradient((ALL_CASES | LAYERS)[name], DType.FP32, Layout.NCHW)
    for problem in (dense, with_gaps(dense)):
        given = Operands.of(problem, "cuda", integers=True)
        expected = given.expected(problem).float()
        for parts in (1, 3):
            plan = BACKEND.build(all_tiles(problem, parts)[0], live)
            assert torch.equal(given.computed(plan), expected), plan.candidate.id


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", [*NAMES, *LAYERS])
def test_errors_stay_within_what_the_arithmetic_allows(name: str, dtype: DType, live: DeviceFacts) -> None:
    problem = gradient((ALL_CASES | LAYERS)[name], dtype)
    given = Operands.of(problem, "cuda", integers=False)
    expected = given.expected(problem)
    for candidate in some(name, problem, live):
        dw = given.computed(BACKEND.build(candidate, live))
        error = relative(dw, expected)
        assert error <= LARGEST_ERROR[candidate.arithmetic], f"{candidate.id}: {error:.2e}"


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    "case",
    [Case((2, 64, 28, 28), (48, 64, 3, 3), padding=SAME), Case((32, 16, 57, 57), (24, 16, 1, 1))],
    ids=["3x3", "103,968 terms"],
)
def test_errors_keep_the_rule_on_every_kind_of_data(case: Case, dtype: DType, live: DeviceFacts) -> None:
    """Beside PyTorch's own call with TF32 off, infinities and NaNs among the data."""
    problem = gradient(case, dtype)
    check = ErrorCheck(problem, "cuda")

    def by_torch(given: dict[Role, torch.Tensor]) -> torch.Tensor:
        x, dy = given[Role.X], given[Role.DY]
        return torch.nn.grad.conv2d_weight(x, problem.w.shape, dy, padding=[before for before, _ in problem.padding])

    with torch.backends.cudnn.flags(enabled=True, allow_tf32=False):
        baseline = check.errors(by_torch)
    for candidate in candidates(ALGORITHM, problem, live):
        if candidate.arithmetic is not Arithmetic.TF32:
            plan = BACKEND.build(candidate, live)
            errors = check.errors(lambda given, plan=plan: plan(given[Role.X], given[Role.DY]))
            assert error_objection(problem, errors, baseline, Policy()) is None, candidate.id


@pytest.mark.parametrize("dtype", DTYPES)
def test_equal_calls_have_equal_bits(dtype: DType, live: DeviceFacts) -> None:
    problem = gradient(LAYERS["ResNet 3x3"], dtype)
    given = Operands.of(problem, "cuda", integers=False)
    for candidate in candidates(ALGORITHM, problem, live):
        plan = BACKEND.build(candidate, live)
        once = given.computed(plan).clone()
        assert torch.equal(given.computed(plan), once), candidate.id


@pytest.mark.parametrize("parts", [1, 4])
def test_a_plan_can_be_captured_in_a_graph(parts: int, live: DeviceFacts) -> None:
    problem = gradient(LAYERS["ResNet 3x3"], DType.FP32)
    given = Operands.of(problem, "cuda", integers=True)
    plan = BACKEND.build(all_tiles(problem, parts)[0], live)
    workspace = torch.empty(plan.workspace_bytes, dtype=torch.uint8, device="cuda")
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        plan(given.x, given.dy, out=given.out, workspace=workspace)
    given.x.neg_()
    given.out.fill_(float("nan"))
    graph.replay()
    assert torch.equal(given.out, given.expected(problem).float())


@pytest.mark.parametrize("parts", [1, 4])
def test_a_plan_runs_on_the_current_stream_and_on_addresses(parts: int, live: DeviceFacts) -> None:
    problem = gradient(LAYERS["ResNet 3x3"], DType.FP16)
    given = Operands.of(problem, "cuda", integers=True)
    expected = given.expected(problem).half()
    plan = BACKEND.build(all_tiles(problem, parts)[0], live)
    stream = torch.cuda.Stream()
    torch.cuda.synchronize()
    with torch.cuda.stream(stream):
        dw = plan(given.x, given.dy)
    workspace = torch.empty(max(plan.workspace_bytes, 1), dtype=torch.uint8, device="cuda")
    plan.launch(
        given.x.data_ptr(), given.dy.data_ptr(), 0, 0, given.out.data_ptr(), workspace.data_ptr(), stream.cuda_stream
    )
    stream.synchronize()
    assert dw.stride() == problem.w.strides
    assert torch.equal(dw, expected)
    assert torch.equal(given.out, expected)


def test_a_weights_gradient_in_fp32_is_computed_by_it_where_tf32_is_off() -> None:
    x = torch.randn(8, 64, 28, 28, device="cuda").to(memory_format=torch.channels_last)
    w = torch.randn(96, 64, 3, 3, device="cuda", requires_grad=True)
    dy = torch.randn(8, 96, 28, 28, device="cuda")
    asked = cw.algorithms(backward_weight="triton/weight-gradient-3xtf32")
    with torch.backends.cudnn.flags(enabled=True, allow_tf32=False), asked:
        cw.conv2d(x, w, padding=1).backward(dy)
    exact = w.detach().double().requires_grad_()
    F.conv2d(x.double(), exact, padding=1).backward(dy.double())
    assert w.grad is not None
    assert exact.grad is not None
    assert (w.grad.double() - exact.grad).norm() / exact.grad.norm() < 1e-6


def test_offsets_beyond_32_bits(live: DeviceFacts, much_memory: Callable[[int], None]) -> None:
    problem = gradient(Case((40, 64, 1024, 1024), (16, 64, 1, 1)), DType.FP16)
    much_memory(2 * (problem.x.nbytes + problem.y.nbytes))
    x, dy = (
        torch.empty(spec.shape, dtype=torch.float16, device="cuda", memory_format=torch.channels_last).zero_()
        for spec in (problem.x, problem.y)
    )
    x[39, :, 1023, 1000:].fill_(1)
    dy[39, 3, 1023, 1023] = 2
    dw = BACKEND.build(candidates(ALGORITHM, problem, live)[0], live)(x, dy)
    assert dw[3].eq(2).all()
    assert dw.sum().item() == 128
