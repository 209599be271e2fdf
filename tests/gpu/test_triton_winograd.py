"""Every configuration of our Winograd convolution computes right on the GPU at hand."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F

import convwright as cw
from backends.triton_interpreted.cases import PLANES, Case, Operands, exact, oracle
from backends.triton_interpreted.winograd_cases import SAME, SERVED, computed, computed_once, every_tile
from convwright.backends.triton.backend import TritonKernels
from convwright.backends.triton.winograd.offers import KERNEL
from convwright.core.candidate import Candidate
from convwright.core.device import DeviceFacts
from convwright.core.direction import Role
from convwright.core.dtype import DType
from convwright.core.error_rule import error_objection
from convwright.core.plan import Launchable, Plan
from convwright.core.policy import Policy
from convwright.core.problem import ConvProblem
from convwright.core.tensor_spec import Layout
from convwright.measuring.checking.error import ErrorCheck
from convwright.rewrites import rewrite
from gpu.own_kernels import candidates
from gpu.right import relative

pytest.importorskip("triton")
pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device, PyTorch sees none"),
]

BACKEND = TritonKernels()
LAYOUTS = [(Layout.NHWC, Layout.NHWC), *PLANES]
LAYERS = {
    "ResNet conv2": Case((16, 64, 56, 56), (64, 64, 3, 3), padding=SAME, epilogue="bias+relu"),
    "ResNet conv4": Case((64, 256, 14, 14), (256, 256, 3, 3), padding=SAME, epilogue="residual+bias+relu"),
    "ResNet conv5": Case((128, 512, 7, 7), (512, 512, 3, 3), padding=SAME),
    "odd image": Case((40, 134, 37, 41), (150, 134, 3, 3), padding=((2, 1), (1, 0)), epilogue="bias"),
}
ALL_CASES = SERVED | LAYERS
LARGEST_ERROR = 5e-7


def some(name: str, problem: ConvProblem, device: DeviceFacts) -> list[Candidate]:
    """All that are offered for a layer, and every third tile for a small problem: each kernel has to be compiled."""
    return candidates(KERNEL, problem, device) if name in LAYERS else every_tile(problem)[len(name) % 3 :: 3]


def run(candidate: Candidate, device: DeviceFacts, given: Operands) -> torch.Tensor:
    return computed(BACKEND.build(candidate, device), given)


def run_once(candidate: Candidate, device: DeviceFacts, given: Operands) -> torch.Tensor:
    """Where nothing may be computed again."""
    return computed_once(BACKEND.build(candidate, device), given)


@pytest.mark.parametrize(("x", "y"), LAYOUTS)
@pytest.mark.parametrize("name", ALL_CASES)
def test_small_integers_come_out_exactly(name: str, x: Layout, y: Layout, live: DeviceFacts) -> None:
    problem = ALL_CASES[name].problem(DType.FP32, x, y)
    given = Operands.of(problem, "cuda", integers=True)
    expected = exact(oracle(problem, given), problem)
    for candidate in some(name, problem, live):
        assert torch.equal(run_once(candidate, live, given), expected), candidate.id


# 67 channels leave a tail in the sum, 48 none.
@pytest.mark.parametrize(("x", "y"), LAYOUTS)
@pytest.mark.parametrize("channels", [67, 48])
def test_every_tile_handles_its_tails(channels: int, x: Layout, y: Layout, live: DeviceFacts) -> None:
    case = Case((3, channels, 17, 18), (75, channels, 3, 3), padding=((1, 0), (0, 1)), epilogue="residual+bias")
    problem = case.problem(DType.FP32, x, y)
    given = Operands.of(problem, "cuda", integers=True)
    expected = exact(oracle(problem, given), problem)
    # By turns, since each has to be compiled.
    for candidate in every_tile(problem)[LAYOUTS.index((x, y)) % 2 :: 2]:
        assert torch.equal(run_once(candidate, live, given), expected), candidate.id


@pytest.mark.parametrize("name", ALL_CASES)
def test_errors_stay_within_what_the_arithmetic_allows(name: str, live: DeviceFacts) -> None:
    problem = ALL_CASES[name].problem(DType.FP32)
    given = Operands.of(problem, "cuda", integers=False)
    expected = oracle(problem, given)
    for candidate in some(name, problem, live):
        error = relative(run_once(candidate, live, given), expected)
        assert error <= LARGEST_ERROR, f"{candidate.id}: {error:.2e}"


@pytest.mark.parametrize("positive", [False, True], ids=["normal", "positive"])
def test_a_long_sum_is_no_worse_than_fp32(positive: bool, live: DeviceFacts) -> None:
    problem = Case((2, 2048, 14, 14), (64, 2048, 3, 3), padding=SAME).problem(DType.FP32)
    given = Operands.of(problem, "cuda", integers=False)
    if positive:
        given.x.abs_()
        given.w.abs_()
    expected = oracle(problem, given)
    with torch.backends.cudnn.flags(enabled=True, allow_tf32=False):
        torch_error = relative(F.conv2d(given.x, given.w, padding=1), expected)
    for candidate in every_tile(problem):
        error = relative(run_once(candidate, live, given), expected)
        assert error <= max(torch_error, LARGEST_ERROR), f"{candidate.id}: {error:.2e}, PyTorch {torch_error:.2e}"


@pytest.mark.parametrize("layout", [Layout.NHWC, Layout.NCHW])
@pytest.mark.parametrize("name", ["ResNet conv2", "ResNet conv4", "odd image"])
def test_errors_keep_the_rule_on_every_kind_of_data(name: str, layout: Layout, live: DeviceFacts) -> None:
    """Beside PyTorch's own call with TF32 off, infinities and NaNs among the data."""
    case = LAYERS[name]
    problem = Case(case.x, case.w, padding=case.padding).problem(DType.FP32, layout, layout)
    check = ErrorCheck(problem, "cuda")
    sides = [side for pair in reversed(problem.padding) for side in pair]

    def by_torch(given: dict[Role, torch.Tensor]) -> torch.Tensor:
        return F.conv2d(F.pad(given[Role.X], sides), given[Role.W])

    with torch.backends.cudnn.flags(enabled=True, allow_tf32=False):
        baseline = check.errors(by_torch)
    for candidate in candidates(KERNEL, problem, live):
        plan = BACKEND.build(candidate, live)
        errors = check.errors(lambda given, plan=plan: plan(given[Role.X], plan.prepare(given[Role.W])))
        assert error_objection(problem, errors, baseline, Policy()) is None, candidate.id


@pytest.mark.parametrize("layout", [Layout.NHWC, Layout.NCHW])
@pytest.mark.parametrize("bits", [0x7F800000, 0xFF800000, 0x7FC00000, 0x7FFFFFFF])
@pytest.mark.parametrize("place", ["x", "w"])
def test_what_is_not_finite_lands_where_it_belongs(bits: int, place: str, layout: Layout, live: DeviceFacts) -> None:
    problem = Case((2, 64, 9, 10), (70, 64, 3, 3), padding=SAME, epilogue="residual+bias").problem(
        DType.FP32, layout, layout
    )
    given = Operands.of(problem, "cuda", integers=False)
    special = torch.tensor(bits, dtype=torch.uint32).view(torch.float32)
    getattr(given, place)[1, 3, 1, 1] = special.to("cuda")
    # On the CPU, whose float64 convolution is a plain matrix product: what is not finite goes where IEEE sends it.
    assert given.bias is not None
    assert given.residual is not None
    expected = F.conv2d(given.x.double().cpu(), given.w.double().cpu(), given.bias.double().cpu(), padding=1)
    expected = (expected + given.residual.double().cpu()).float().cuda()
    assert not expected.isfinite().all()
    for candidate in every_tile(problem):
        y = run(candidate, live, given)
        assert torch.allclose(y, expected, rtol=1e-4, atol=1e-4, equal_nan=True), candidate.id


@pytest.mark.parametrize(("large", "small"), [("x", "w"), ("w", "x")])
def test_transforms_overflow_where_the_result_does_not(large: str, small: str, live: DeviceFacts) -> None:
    problem = Case((2, 40, 12, 12), (70, 40, 3, 3), padding=SAME).problem(DType.FP32)
    given = Operands.of(problem, "cuda", integers=False)
    getattr(given, large).clamp_(-2, 2).mul_(1.5e38)
    getattr(given, small).mul_(1e-4)
    expected = oracle(problem, given)
    assert expected.abs().max() < 1e37
    for candidate in every_tile(problem):
        assert relative(run(candidate, live, given), expected) <= LARGEST_ERROR, candidate.id


def test_equal_calls_have_equal_bits(live: DeviceFacts) -> None:
    problem = LAYERS["ResNet conv4"].problem(DType.FP32)
    given = Operands.of(problem, "cuda", integers=False)
    for candidate in candidates(KERNEL, problem, live):
        once = run(candidate, live, given).clone()
        assert torch.equal(run(candidate, live, given), once), candidate.id


def ready(device: DeviceFacts) -> tuple[Plan, ConvProblem, Operands]:
    problem = LAYERS["ResNet conv4"].problem(DType.FP32)
    given = Operands.of(problem, "cuda", integers=True)
    return BACKEND.build(candidates(KERNEL, problem, device)[0], device), problem, given


def test_a_plan_can_be_captured_in_a_graph_with_its_weight(live: DeviceFacts) -> None:
    plan, problem, given = ready(live)
    plan(given.x, plan.prepare(given.w), given.bias, given.residual, given.out)
    workspace = torch.empty(plan.workspace_bytes, dtype=torch.uint8, device="cuda")
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        plan(given.x, plan.prepare(given.w), given.bias, given.residual, given.out, workspace)
    given.x.neg_()
    given.w.add_(1)
    given.out.fill_(float("nan"))
    graph.replay()
    assert torch.equal(given.out, exact(oracle(problem, given), problem))


def test_a_plan_runs_on_the_current_stream_and_on_addresses(live: DeviceFacts) -> None:
    plan, problem, given = ready(live)
    assert isinstance(plan, Launchable)
    assert given.bias is not None
    assert given.residual is not None
    expected = exact(oracle(problem, given), problem)
    weight = plan.prepare(given.w)
    workspace = torch.empty(plan.workspace_bytes, dtype=torch.uint8, device="cuda")
    stream = torch.cuda.Stream()
    torch.cuda.synchronize()
    with torch.cuda.stream(stream):
        y = plan(given.x, weight, given.bias, given.residual)
    addresses = (given.x, weight, given.bias, given.residual, given.out, workspace)
    plan.launch(*[tensor.data_ptr() for tensor in addresses], stream.cuda_stream)
    stream.synchronize()
    assert y.stride() == problem.y.strides
    assert torch.equal(y, expected)
    assert torch.equal(given.out, expected)


@pytest.mark.parametrize("memory_format", [torch.contiguous_format, torch.channels_last], ids=["nchw", "nhwc"])
def test_a_layer_and_its_gradient_are_computed_by_it_where_tf32_is_off(
    memory_format: torch.memory_format, live: DeviceFacts
) -> None:
    x = torch.randn(32, 64, 57, 56, device="cuda").to(memory_format=memory_format).requires_grad_()
    w = torch.randn(96, 64, 3, 3, device="cuda")
    dy = torch.randn(32, 96, 57, 56, device="cuda").to(memory_format=memory_format)
    gradient = cw.problem(x, w, padding=1, direction="backward_data")
    leaf = candidates(KERNEL, rewrite("as-forward").inner(gradient, ()), live)[-1]
    turned = rewrite("as-forward").wrap(gradient, (), leaf).id
    with (
        torch.backends.cudnn.flags(enabled=True, allow_tf32=False),
        cw.algorithms(forward="triton/winograd-3xtf32", backward_data=turned),
    ):
        y = cw.conv2d(x, w, padding=1)
        y.backward(dy)
    wide = x.detach().double().requires_grad_()
    expected = F.conv2d(wide, w.double(), padding=1)
    expected.backward(dy.double())
    assert x.grad is not None
    assert wide.grad is not None
    assert relative(y.detach(), expected.detach()) < 1e-6
    assert relative(x.grad, wide.grad) < 1e-6


def test_offsets_beyond_32_bits(live: DeviceFacts, much_memory: Callable[[int], None]) -> None:
    """Of an input that is a slice of a far wider buffer, whose images lie far from each other."""
    problem = Case((40, 32, 128, 128), (32, 32, 3, 3), padding=SAME, slack=4064).problem(DType.FP32)
    much_memory(2 * (problem.x.span_bytes + problem.y.span_bytes))
    given = Operands.of(problem, "cuda", integers=True)
    expected = exact(oracle(problem, given), problem)
    for candidate in every_tile(problem)[::3]:
        assert torch.equal(run_once(candidate, live, given), expected), candidate.id
