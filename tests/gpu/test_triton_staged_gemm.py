"""Every tile of products on a staged input computes right on the GPU at hand."""

from __future__ import annotations

from collections.abc import Callable
from itertools import cycle
from math import inf, nan

import pytest
import torch
import torch.nn.functional as F

import convwright as cw
from backends.triton_interpreted.cases import Case, Operands, exact, oracle
from backends.triton_interpreted.staged_gemm_cases import ALGORITHM, SAME, SERVED, every_tile, in_parts, uneven_integers
from convwright.backends.triton.backend import TritonKernels
from convwright.backends.triton.gemm.tiles import Tile
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
LAYERS = {
    "ResNet conv2": Case((16, 64, 56, 56), (64, 64, 3, 3), padding=SAME),
    "ResNet conv4": Case((64, 256, 14, 14), (256, 256, 3, 3), padding=SAME, epilogue="residual+bias+relu"),
    "ResNet conv4 of one image": Case((1, 256, 14, 14), (256, 256, 3, 3), padding=SAME),
    "ResNet 1x1": Case((4, 256, 14, 14), (1024, 256, 1, 1), epilogue="bias+relu"),
}
# Of those that the interpreter computes, each unlike the others.
SMALL = (
    "pointwise", "pointwise, strided", "asymmetric padding", "slice of a wider buffer", "1-D",
    "groups that fill no tile", "any window of a volume", "groups of a volume",
)  # fmt: skip
# 70 channels leave a tail in the sum, 918 pixels and 75 outputs some in all tiles; its kernels serve many tests.
TAILS = Case((3, 70, 17, 18), (75, 70, 3, 3), padding=SAME)
LAYOUTS = (Layout.NHWC, Layout.NCHW)
LARGEST_ERROR = 5e-7


def run(candidate: Candidate, device: DeviceFacts, given: Operands) -> torch.Tensor:
    return given.computed(BACKEND.build(candidate, device))


def some(name: str, problem: ConvProblem, device: DeviceFacts) -> list[Candidate]:
    """The best that is offered, and the best in parts where there is one: each kernel has to be compiled."""
    found = candidates(ALGORITHM, problem, device)
    parted = [each for each in found if Tile.of(each).in_parts]
    return list(dict.fromkeys([found[0], *parted[:1], *found[1 : 2 - bool(parted)]]))


def tails(layout: Layout) -> tuple[ConvProblem, list[Candidate]]:
    """Half of all tiles, each third of them in parts of which the last has fewer steps."""
    problem = TAILS.problem(DType.FP32, layout, layout)
    tiles = every_tile(problem)[LAYOUTS.index(layout) :: 2]
    return problem, [in_parts(each, parts) for each, parts in zip(tiles, cycle((1, 5, 1)), strict=False)]


@pytest.mark.parametrize(("turn", "name"), enumerate(SMALL))
def test_small_integers_come_out_exactly(turn: int, name: str, live: DeviceFacts) -> None:
    problem = SERVED[name].problem(DType.FP32, LAYOUTS[turn % 2], LAYOUTS[turn // 2 % 2])
    given = uneven_integers(problem, "cuda")
    tiles = every_tile(problem)
    candidate = in_parts(tiles[5 * turn % len(tiles)], 1 + turn % 3)
    assert torch.equal(run(candidate, live, given), exact(oracle(problem, given), problem)), candidate.id


@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_tile_handles_its_tails(layout: Layout, live: DeviceFacts) -> None:
    problem, tiles = tails(layout)
    given = uneven_integers(problem, "cuda")
    expected = exact(oracle(problem, given), problem)
    for candidate in tiles:
        assert torch.equal(run(candidate, live, given), expected), candidate.id


@pytest.mark.parametrize("name", LAYERS)
def test_layers_are_right_and_have_equal_bits_from_run_to_run(name: str, live: DeviceFacts) -> None:
    problem = LAYERS[name].problem(DType.FP32)
    whole, real = (Operands.of(problem, "cuda", integers=integers) for integers in (True, False))
    sums, expected = exact(oracle(problem, whole), problem), oracle(problem, real)
    for candidate in some(name, problem, live):
        assert torch.equal(run(candidate, live, whole), sums), candidate.id
        y = run(candidate, live, real).clone()
        error = relative(y, expected)
        assert error <= LARGEST_ERROR, f"{candidate.id}: {error:.2e}"
        for _ in range(3):
            assert torch.equal(run(candidate, live, real), y), candidate.id


# What it errs.


@pytest.mark.parametrize("name", ["ResNet conv2", "ResNet conv4 of one image"])
def test_errors_keep_the_rule_on_every_kind_of_data(name: str, live: DeviceFacts) -> None:
    """Beside PyTorch's own call with TF32 off, infinities and NaNs among the data."""
    problem = LAYERS[name].problem(DType.FP32)
    check = ErrorCheck(problem, "cuda")
    with torch.backends.cudnn.flags(enabled=True, allow_tf32=False):
        baseline = check.errors(lambda given: F.conv2d(given[Role.X], given[Role.W], padding=1))
    for candidate in some(name, problem, live):
        plan = BACKEND.build(candidate, live)
        errors = check.errors(lambda given, plan=plan: plan(given[Role.X], plan.prepare(given[Role.W])))
        assert error_objection(problem, errors, baseline, Policy()) is None, candidate.id


@pytest.mark.parametrize("positive", [False, True], ids=["normal", "positive"])
def test_a_long_sum_is_no_worse_than_fp32(positive: bool, live: DeviceFacts) -> None:
    problem = Case((2, 2048, 7, 7), (64, 2048, 3, 3), padding=SAME).problem(DType.FP32)
    given = Operands.of(problem, "cuda", integers=False)
    if positive:
        given.x.abs_()
        given.w.abs_()
    expected = oracle(problem, given)
    with torch.backends.cudnn.flags(enabled=True, allow_tf32=False):
        torch_error = relative(F.conv2d(given.x, given.w, padding=1), expected)
    for candidate in every_tile(problem)[5::6]:
        error = relative(run(candidate, live, given), expected)
        assert error <= max(torch_error, LARGEST_ERROR), f"{candidate.id}: {error:.2e}, PyTorch {torch_error:.2e}"


def alike(y: torch.Tensor, expected: torch.Tensor) -> bool:
    """To within a few roundoffs each, where fp32 has its full precision; sums are of one sign."""
    normal = (expected.abs() > 1e-37) & (expected.abs() < 3e38)
    return bool(((y.double() - expected).abs() <= 1e-6 * expected.abs())[normal].all())


@pytest.mark.parametrize("layout", LAYOUTS)
def test_channels_and_pixels_are_as_precise_beside_others_of_any_magnitude(layout: Layout, live: DeviceFacts) -> None:
    problem, tiles = tails(layout)
    given = Operands.of(problem, "cuda", integers=False)
    for operand in (given.x, given.w):
        operand.abs_().add_(0.25)
    pixels = torch.tensor([1e-30, 1e-30, 1e30], device="cuda").repeat(6)
    outputs = torch.tensor([1e-20, 1e10, 1.0], device="cuda").repeat(25).view(-1, 1, 1, 1)
    inputs = torch.logspace(-3, 3, 70, device="cuda").view(1, -1, 1, 1)
    for operand, factors, inverse in ((given.x, pixels, 1.0), (given.w, outputs, 1.0), (given.x, inputs, inputs)):
        operand.mul_(factors)
        given.w.div_(inverse)
        expected = oracle(problem, given)
        for candidate in tiles[::2]:
            assert alike(run(candidate, live, given), expected), candidate.id
        operand.div_(factors)
        given.w.mul_(inverse)


@pytest.mark.parametrize("place", ["x", "w"])
def test_numbers_below_full_precision_are_summed_as_they_are(place: str, live: DeviceFacts) -> None:
    problem, tiles = tails(Layout.NHWC)
    given = Operands.of(problem, "cuda", integers=False)
    getattr(given, place).mul_(1e-40)
    expected = oracle(problem, given)
    for candidate in tiles[::2]:
        # Each of 27 steps is rounded to a multiple of the least number that there is.
        y = run(candidate, live, given)
        assert torch.allclose(y.double(), expected, rtol=0, atol=27 * 2.0**-149), candidate.id


# What is not finite.


def by_ieee(given: Operands) -> torch.Tensor:
    """On the CPU, whose float64 convolution is a plain matrix product: what is not finite goes where IEEE sends it."""
    return F.conv2d(F.pad(given.x.double().cpu(), (1, 1, 1, 1)), given.w.double().cpu()).float().cuda()


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("bits", [0x7F800000, 0xFF800000, 0x7FC00000, 0x7FFFFFFF])
@pytest.mark.parametrize("place", ["x", "w"])
def test_what_is_not_finite_lands_where_it_belongs(bits: int, place: str, layout: Layout, live: DeviceFacts) -> None:
    problem, tiles = tails(layout)
    given = Operands.of(problem, "cuda", integers=False)
    special = torch.tensor(bits, dtype=torch.uint32).view(torch.float32)
    getattr(given, place)[1, 3, 1, 1] = special.to("cuda")
    expected = by_ieee(given)
    assert not expected.isfinite().all()
    assert expected.isfinite().any()
    for candidate in tiles:
        y = run(candidate, live, given)
        assert torch.allclose(y, expected, rtol=1e-4, atol=1e-4, equal_nan=True), candidate.id


@pytest.mark.parametrize("infinite", ["x", "w"])
def test_an_infinity_meets_any_number_as_ieee_says(infinite: str, live: DeviceFacts) -> None:
    """Beside it a number so small that fp16 has none like it is still no 0."""
    problem, tiles = tails(Layout.NHWC)
    given = Operands.of(problem, "cuda", integers=False)
    beside = torch.tensor([1e-30, -1e-30, 1e-44, 0.0, -0.0, 3.0, inf, -inf, nan, 1.0], device="cuda")
    x, w = given.x[0, 3, 4, :10], given.w[:10, 3, 1, 1]
    (x if infinite == "x" else w)[:2] = torch.tensor([inf, -inf], device="cuda")
    (w if infinite == "x" else x).copy_(beside)
    expected = by_ieee(given)
    for candidate in tiles:
        y = run(candidate, live, given)
        assert torch.allclose(y, expected, rtol=1e-4, atol=1e-4, equal_nan=True), candidate.id


# Calls.


def ready(device: DeviceFacts) -> tuple[Plan, ConvProblem, Operands]:
    problem = LAYERS["ResNet conv4"].problem(DType.FP32)
    given = Operands.of(problem, "cuda", integers=True)
    return BACKEND.build(candidates(ALGORITHM, problem, device)[0], device), problem, given


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
    given.out.fill_(nan)
    workspace.fill_(0xFF)
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
    case = LAYERS["ResNet conv2"]
    x = torch.randn(case.x, device="cuda").to(memory_format=memory_format).requires_grad_()
    w = torch.randn(case.w, device="cuda")
    dy = torch.randn(case.x, device="cuda").to(memory_format=memory_format)
    gradient = cw.problem(x, w, padding=1, direction="backward_data")
    leaf = candidates(ALGORITHM, rewrite("as-forward").inner(gradient, ()), live)[0]
    turned = rewrite("as-forward").wrap(gradient, (), leaf).id
    with (
        torch.backends.cudnn.flags(enabled=True, allow_tf32=False),
        cw.algorithms(forward=f"triton/{ALGORITHM}", backward_data=turned),
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
    candidate = candidates(ALGORITHM, problem, live)[0]
    assert torch.equal(run(candidate, live, given), exact(oracle(problem, given), problem)), candidate.id
