"""Every configuration of an input's gradient computes right on the GPU at hand."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch.nn import functional as F

import convwright as cw
from backends.triton_interpreted.cases import PLANES, Case
from backends.triton_interpreted.input_gradient_cases import STRIDED, Operands, all_tiles, gradient
from convwright.backends.triton.backend import TritonKernels
from convwright.backends.triton.input_gradient.offers import KERNEL
from convwright.core.candidate import Candidate
from convwright.core.device import DeviceFacts
from convwright.core.direction import Role
from convwright.core.dtype import Arithmetic, DType
from convwright.core.error_rule import error_objection
from convwright.core.plan import Launchable
from convwright.core.policy import Policy
from convwright.core.problem import ConvProblem
from convwright.core.tensor_spec import Layout
from convwright.measuring.checking.error import ErrorCheck
from convwright.tensors import torch_dtype
from gpu.own_kernels import by_turns, candidates
from gpu.right import relative

pytest.importorskip("triton")
pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device, PyTorch sees none"),
]

BACKEND = TritonKernels()
SAME = ((1, 1), (1, 1))
LAYERS = {
    "ResNet 3x3": Case((4, 256, 28, 28), (256, 256, 3, 3), (2, 2), SAME),
    "ResNet 1x1": Case((4, 256, 28, 28), (512, 256, 1, 1), (2, 2)),
    "ResNet stem": Case((2, 3, 224, 224), (64, 3, 7, 7), (2, 2), ((3, 3), (3, 3))),
    "odd image": Case((3, 70, 37, 41), (52, 70, 5, 3), (2, 3), ((2, 1), (1, 0))),
}
DTYPES = [DType.FP16, DType.BF16, DType.FP32]
LARGEST_ERROR = {
    Arithmetic.FP16_ACC32: 6e-4,
    Arithmetic.BF16_ACC32: 5e-3,
    Arithmetic.TF32: 2e-3,
    Arithmetic.TF32X3: 5e-7,
}


def some(name: str, problem: ConvProblem, device: DeviceFacts) -> list[Candidate]:
    """All that are offered for a layer, and every fifth for a small problem: each kernel has to be compiled."""
    return candidates(KERNEL, problem, device)[:: 1 if name in LAYERS else 5]


def assert_exact(candidate: Candidate, device: DeviceFacts, given: Operands, expected: torch.Tensor) -> None:
    dx = given.computed(BACKEND.build(candidate, device))
    assert torch.equal(dx, expected.to(torch_dtype(candidate.problem.dtype))), candidate.id


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", [*STRIDED, *LAYERS])
def test_small_integers_come_out_exactly(name: str, dtype: DType, live: DeviceFacts) -> None:
    problem = gradient((STRIDED | LAYERS)[name], dtype)
    given = Operands.of(problem, "cuda", integers=True)
    expected = given.expected(problem)
    for candidate in some(name, problem, live):
        assert_exact(candidate, live, given, expected)


@pytest.mark.parametrize(
    ("name", "lying", "dtype"), by_turns([*STRIDED, *LAYERS], PLANES, [DType.FP16, DType.FP32, DType.BF16, DType.FP32])
)
def test_operands_may_lie_in_planes(name: str, lying: tuple[Layout, Layout], dtype: DType, live: DeviceFacts) -> None:
    problem = gradient((STRIDED | LAYERS)[name], dtype, *lying)
    given = Operands.of(problem, "cuda", integers=True)
    expected = given.expected(problem)
    for candidate in candidates(KERNEL, problem, live)[::8]:
        assert_exact(candidate, live, given, expected)


# In sixths, since each of them has to be compiled. 70 channels make a step of the sum run across taps, 56 do not.
@pytest.mark.parametrize(("channels", "first"), [(70, 0), (56, 1), (70, 2), (56, 3), (70, 4), (56, 5)])
@pytest.mark.parametrize("dtype", DTYPES)
def test_every_tile_handles_its_tails(dtype: DType, channels: int, first: int, live: DeviceFacts) -> None:
    problem = gradient(Case((3, 70, 9, 18), (channels, 70, 2, 3), (1, 2), ((1, 0), (0, 1))), dtype)
    given = Operands.of(problem, "cuda", integers=True)
    expected = given.expected(problem)
    for candidate in all_tiles(problem)[first::6]:
        assert_exact(candidate, live, given, expected)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", [*STRIDED, *LAYERS])
def test_errors_stay_within_what_the_arithmetic_allows(name: str, dtype: DType, live: DeviceFacts) -> None:
    problem = gradient((STRIDED | LAYERS)[name], dtype)
    given = Operands.of(problem, "cuda", integers=False)
    expected = given.expected(problem)
    for candidate in some(name, problem, live):
        dx = given.computed(BACKEND.build(candidate, live))
        error = relative(dx, expected)
        assert error <= LARGEST_ERROR[candidate.arithmetic], f"{candidate.id}: {error:.2e}"


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", ["ResNet 3x3", "odd image"])
def test_errors_keep_the_rule_on_every_kind_of_data(name: str, dtype: DType, live: DeviceFacts) -> None:
    """Beside PyTorch's own call with TF32 off, infinities and NaNs among the data."""
    problem = gradient(LAYERS[name], dtype)
    check = ErrorCheck(problem, "cuda")
    top, left = (sides[0] for sides in problem.padding)
    bottom, right = (sides[1] for sides in problem.padding)
    height, width = problem.x.shape[2:]

    def by_torch(given: dict[Role, torch.Tensor]) -> torch.Tensor:
        wide = (*problem.x.shape[:2], height + top + bottom, width + left + right)
        dx = torch.nn.grad.conv2d_input(wide, given[Role.W], given[Role.DY], stride=problem.stride)
        return dx[:, :, top : top + height, left : left + width]

    with torch.backends.cudnn.flags(enabled=True, allow_tf32=False):
        baseline = check.errors(by_torch)
    for candidate in candidates(KERNEL, problem, live):
        if candidate.arithmetic is not Arithmetic.TF32:
            plan = BACKEND.build(candidate, live)
            errors = check.errors(lambda given, plan=plan: plan(given[Role.DY], plan.prepare(given[Role.W])))
            assert error_objection(problem, errors, baseline, Policy()) is None, candidate.id


@pytest.mark.parametrize("bits", [0x7F800000, 0xFF800000, 0x7FC00000, 0x7FFFFFFF])
@pytest.mark.parametrize("place", ["dy", "w"])
def test_what_is_not_finite_lands_where_it_belongs(bits: int, place: str, live: DeviceFacts) -> None:
    # No tap reaches beyond dy, where a weight that is not finite would meet a zero.
    problem = gradient(Case((2, 70, 12, 16), (64, 70, 2, 2), (2, 2)), DType.FP32)
    given = Operands.of(problem, "cuda", integers=False)
    special = torch.tensor(bits, dtype=torch.uint32).view(torch.float32)
    getattr(given, place)[1, 3, 1, 1] = special.to("cuda")
    on_cpu = Operands(given.dy.cpu(), given.w.cpu(), given.out.cpu())
    expected = on_cpu.expected(problem).float().cuda()
    assert not expected.isfinite().all()
    for candidate in candidates(KERNEL, problem, live):
        loose = (
            {"rtol": 1e-4, "atol": 1e-4} if candidate.arithmetic is Arithmetic.TF32X3 else {"rtol": 0.1, "atol": 0.5}
        )
        dx = given.computed(BACKEND.build(candidate, live))
        assert torch.allclose(dx, expected, equal_nan=True, **loose), candidate.id


@pytest.mark.parametrize("dtype", DTYPES)
def test_equal_calls_have_equal_bits(dtype: DType, live: DeviceFacts) -> None:
    problem = gradient(LAYERS["ResNet 3x3"], dtype)
    given = Operands.of(problem, "cuda", integers=False)
    for candidate in candidates(KERNEL, problem, live):
        plan = BACKEND.build(candidate, live)
        once = given.computed(plan).clone()
        assert torch.equal(given.computed(plan), once), candidate.id


def test_a_plan_can_be_captured_in_a_graph(live: DeviceFacts) -> None:
    problem = gradient(LAYERS["ResNet 3x3"], DType.FP16)
    given = Operands.of(problem, "cuda", integers=True)
    plan = BACKEND.build(candidates(KERNEL, problem, live)[0], live)
    weight = plan.prepare(given.w)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        plan(given.dy, weight, out=given.out)
    given.dy.neg_()
    given.out.fill_(float("nan"))
    graph.replay()
    assert torch.equal(given.out, given.expected(problem).half())


def test_a_plan_runs_on_the_current_stream_and_on_addresses(live: DeviceFacts) -> None:
    problem = gradient(LAYERS["ResNet 3x3"], DType.FP16)
    given = Operands.of(problem, "cuda", integers=True)
    expected = given.expected(problem).half()
    plan = BACKEND.build(candidates(KERNEL, problem, live)[0], live)
    assert isinstance(plan, Launchable)
    weight = plan.prepare(given.w)
    stream = torch.cuda.Stream()
    torch.cuda.synchronize()
    with torch.cuda.stream(stream):
        dx = plan(given.dy, weight)
    plan.launch(given.dy.data_ptr(), weight.data_ptr(), 0, 0, given.out.data_ptr(), 0, stream.cuda_stream)
    stream.synchronize()
    assert dx.stride() == problem.x.strides
    assert torch.equal(dx, expected)
    assert torch.equal(given.out, expected)


@pytest.mark.parametrize("memory_format", [torch.contiguous_format, torch.channels_last], ids=["nchw", "nhwc"])
def test_a_gradient_in_fp32_is_computed_by_it_where_tf32_is_off(memory_format: torch.memory_format) -> None:
    x = torch.randn(8, 64, 57, 56, device="cuda").to(memory_format=memory_format).requires_grad_()
    w = torch.randn(96, 64, 3, 3, device="cuda")
    dy = torch.randn(8, 96, 29, 28, device="cuda").to(memory_format=memory_format)
    asked = cw.algorithms(backward_data="triton/input-gradient-3xtf32")
    with torch.backends.cudnn.flags(enabled=True, allow_tf32=False), asked:
        cw.conv2d(x, w, stride=2, padding=1).backward(dy)
    exact = x.detach().double().requires_grad_()
    F.conv2d(exact, w.double(), stride=2, padding=1).backward(dy.double())
    assert x.grad is not None
    assert exact.grad is not None
    assert (x.grad.double() - exact.grad).norm() / exact.grad.norm() < 1e-6


def test_a_transposed_convolution_is_computed_by_it(live: DeviceFacts) -> None:
    x, w = torch.randn(4, 96, 20, 21, device="cuda").half(), torch.randn(96, 40, 4, 4, device="cuda").half()
    y = cw.conv_transpose2d(x, w, stride=2, padding=1, algorithm="triton/input-gradient")
    exact = F.conv_transpose2d(x.double(), w.double(), stride=2, padding=1)
    assert (y.double() - exact).norm() / exact.norm() < 6e-4


def test_offsets_beyond_32_bits(live: DeviceFacts, much_memory: Callable[[int], None]) -> None:
    problem = gradient(Case((40, 64, 1024, 1024), (16, 64, 1, 1), (1, 2)), DType.FP16)
    much_memory(2 * (problem.x.nbytes + problem.y.nbytes))
    dy = torch.empty(problem.y.shape, dtype=torch.float16, device="cuda", memory_format=torch.channels_last).zero_()
    dy[39].fill_(1)
    w = torch.ones(problem.w.shape, dtype=torch.float16, device="cuda")
    plan = BACKEND.build(candidates(KERNEL, problem, live)[0], live)
    dx = plan(dy, plan.prepare(w))
    assert dx[39, :, :, ::2].eq(16).all()
    assert dx[39, :, :, 1::2].eq(0).all()
    assert not dx[:39].any()
