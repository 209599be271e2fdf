"""Every tile of products on folded rows of taps computes right on the GPU at hand."""

from __future__ import annotations

from collections.abc import Callable
from math import inf, nan

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import convwright as cw
from backends.triton_interpreted.cases import Case, Operands, exact, oracle
from backends.triton_interpreted.folded_gemm_cases import ALGORITHM, SAME, SERVED, every_tile
from backends.triton_interpreted.fp16_parts_cases import (
    BESIDE_AN_INFINITY,
    LARGEST_ERROR,
    NON_FINITE_BITS,
    each_is_near,
    lies_as_ieee_says,
    number,
    of_one_sign,
)
from convwright.backends.triton.backend import TritonKernels
from convwright.backends.triton.folded_gemm.offers import algorithms_of
from convwright.core.candidate import Candidate
from convwright.core.device import DeviceFacts
from convwright.core.direction import Role
from convwright.core.dtype import Arithmetic, DType
from convwright.core.error_rule import error_objection
from convwright.core.plan import Launchable, Plan
from convwright.core.policy import Policy
from convwright.core.problem import ConvProblem
from convwright.core.tensor_spec import Layout
from convwright.measuring.checking.error import ErrorCheck
from gpu.own_kernels import candidates
from gpu.right import relative

pytest.importorskip("triton")
pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device, PyTorch sees none"),
]

BACKEND = TritonKernels()
LAYOUTS = (Layout.NHWC, Layout.NCHW)
DTYPES = [DType.FP32, DType.FP16, DType.BF16]
# Of those that the interpreter computes, each unlike the others.
SMALL = (
    "one channel", "a step filled by taps", "five channels, strided", "slice of a wider buffer", "1-D",
    "any window of a volume", "slice of a volume",
)  # fmt: skip
STEM = Case((4, 3, 224, 224), (64, 3, 7, 7), (2, 2), ((3, 3), (3, 3)), epilogue="bias+relu")
PLAIN_STEM = Case((4, 3, 112, 112), (64, 3, 7, 7), (2, 2), ((3, 3), (3, 3)))
# 918 pixels and 75 outputs leave a tail in all tiles; its kernels serve many tests.
TAILS = Case((3, 3, 17, 18), (75, 3, 3, 3), padding=SAME)


def run(candidate: Candidate, device: DeviceFacts, given: Operands) -> Tensor:
    return given.computed(BACKEND.build(candidate, device))


def best(problem: ConvProblem, device: DeviceFacts) -> list[Candidate]:
    """Of each algorithm: every kernel has to be compiled."""
    found = candidates(ALGORITHM, problem, device)
    names = [algorithm.name for algorithm in algorithms_of(problem.dtype)]
    return [next(each for each in found if each.algorithm == name) for name in names]


def tails(layout: Layout) -> tuple[ConvProblem, list[Candidate]]:
    """Half of all tiles for fp32: of each algorithm others."""
    problem = TAILS.problem(DType.FP32, layout, layout)
    turn = LAYOUTS.index(layout)
    split, scaled = every_tile(problem)[:10], every_tile(problem)[10:]
    return problem, [*split[turn::2], *scaled[1 - turn :: 2]]


@pytest.mark.parametrize(("turn", "name"), list(enumerate(SMALL)))
def test_small_integers_come_out_exactly(turn: int, name: str, live: DeviceFacts) -> None:
    problem = SERVED[name].problem(DTYPES[turn % 3], LAYOUTS[turn % 2], LAYOUTS[turn // 2 % 2])
    given = Operands.of(problem, "cuda", integers=True)
    tiles = every_tile(problem)
    candidate = tiles[(3 * turn + 7) % len(tiles)]
    assert torch.equal(run(candidate, live, given), exact(oracle(problem, given), problem)), candidate.id


@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_tile_handles_its_tails(layout: Layout, live: DeviceFacts) -> None:
    problem, tiles = tails(layout)
    given = Operands.of(problem, "cuda", integers=True)
    expected = exact(oracle(problem, given), problem)
    for candidate in tiles:
        assert torch.equal(run(candidate, live, given), expected), candidate.id


@pytest.mark.parametrize("dtype", [DType.FP16, DType.BF16])
def test_some_tiles_handle_tails_of_half_precision(dtype: DType, live: DeviceFacts) -> None:
    problem = TAILS.problem(dtype)
    given = Operands.of(problem, "cuda", integers=True)
    expected = exact(oracle(problem, given), problem)
    for candidate in every_tile(problem)[dtype is DType.BF16 :: 5]:
        assert torch.equal(run(candidate, live, given), expected), candidate.id


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_stem_is_right_and_has_equal_bits_from_run_to_run(dtype: DType, live: DeviceFacts) -> None:
    problem = STEM.problem(dtype)
    whole, real = (Operands.of(problem, "cuda", integers=integers) for integers in (True, False))
    sums, expected = exact(oracle(problem, whole), problem), oracle(problem, real)
    for candidate in best(problem, live):
        assert torch.equal(run(candidate, live, whole), sums), candidate.id
        y = run(candidate, live, real).clone()
        error = relative(y, expected)
        assert error <= LARGEST_ERROR[candidate.arithmetic], f"{candidate.id}: {error:.2e}"
        for _ in range(3):
            assert torch.equal(run(candidate, live, real), y), candidate.id


# What it errs.


@pytest.mark.parametrize("dtype", DTYPES)
def test_errors_keep_the_rule_on_every_kind_of_data(dtype: DType, live: DeviceFacts) -> None:
    """Beside PyTorch's own call, of one fp16 number with TF32 on and else with TF32 off, infinities and NaNs among the
    data."""
    problem = PLAIN_STEM.problem(dtype)
    check = ErrorCheck(problem, "cuda")
    for candidate in best(problem, live):
        scaled = candidate.arithmetic is Arithmetic.SCALED_FP16
        with torch.backends.cudnn.flags(enabled=True, allow_tf32=scaled):
            baseline = check.errors(lambda given: F.conv2d(given[Role.X], given[Role.W], stride=2, padding=3))
        if scaled and next(each for each in baseline if each.kind == "normal").relative_l2 < 1e-5:
            continue  # PyTorch does not compute this in TF32
        plan = BACKEND.build(candidate, live)
        errors = check.errors(lambda given, plan=plan: plan(given[Role.X], plan.prepare(given[Role.W])))
        assert error_objection(problem, errors, baseline, Policy()) is None, candidate.id


@pytest.mark.parametrize("layout", LAYOUTS)
def test_channels_and_images_are_as_precise_beside_others_of_any_magnitude(layout: Layout, live: DeviceFacts) -> None:
    problem, tiles = tails(layout)
    given = Operands.of(problem, "cuda", integers=False)
    of_one_sign(given.x, given.w)
    magnitudes = torch.tensor([1e-20, 1e10, 1.0], device="cuda")
    for operand, factors in ((given.x, magnitudes), (given.w, magnitudes.repeat(25))):
        operand.mul_(factors.view(-1, 1, 1, 1))
        expected = oracle(problem, given)
        for candidate in tiles[::2]:
            assert each_is_near(run(candidate, live, given), expected, candidate.arithmetic), candidate.id
        operand.div_(factors.view(-1, 1, 1, 1))


# What is not finite.


def by_ieee(given: Operands) -> Tensor:
    """On the CPU, whose float64 convolution is a plain matrix product: what is not finite goes where IEEE sends it."""
    return F.conv2d(F.pad(given.x.double().cpu(), (1, 1, 1, 1)), given.w.double().cpu()).cuda()


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("bits", NON_FINITE_BITS)
@pytest.mark.parametrize("place", ["x", "w"])
def test_what_is_not_finite_lands_where_it_belongs(bits: int, place: str, layout: Layout, live: DeviceFacts) -> None:
    problem, tiles = tails(layout)
    given = Operands.of(problem, "cuda", integers=False)
    getattr(given, place)[1, 2, 1, 1] = number(bits).to("cuda")
    expected = by_ieee(given)
    for candidate in tiles:
        assert lies_as_ieee_says(run(candidate, live, given), expected, candidate.arithmetic), candidate.id


@pytest.mark.parametrize("infinite", ["x", "w"])
def test_an_infinity_meets_any_number_as_ieee_says(infinite: str, live: DeviceFacts) -> None:
    """By one of each sign each of these in the other operand."""
    problem, tiles = tails(Layout.NHWC)
    given = Operands.of(problem, "cuda", integers=False)
    count = len(BESIDE_AN_INFINITY)
    x, w = given.x[0, 1, 4, :count], given.w[:count, 1, 1, 1]
    (x if infinite == "x" else w)[:2] = torch.tensor([inf, -inf], device="cuda")
    (w if infinite == "x" else x).copy_(torch.tensor(BESIDE_AN_INFINITY, device="cuda"))
    expected = by_ieee(given)
    for candidate in tiles:
        assert lies_as_ieee_says(run(candidate, live, given), expected, candidate.arithmetic), candidate.id


@pytest.mark.parametrize(("others", "beside"), [(0.0, 1e-4), (1e-30, 1e-20), (1e30, 1e5)])
def test_an_infinity_among_numbers_of_any_magnitude_stays_one(others: float, beside: float, live: DeviceFacts) -> None:
    problem, tiles = tails(Layout.NHWC)
    given = Operands.of(problem, "cuda", integers=False)
    of_one_sign(given.x, given.w)
    given.x.mul_(others)
    given.w.mul_(beside)
    given.x[1, 2, 5, 6] = -inf
    for candidate in tiles:
        y = run(candidate, live, given)
        assert y[1, :, 4:7, 5:8].eq(-inf).all(), candidate.id
        y[1, :, 4:7, 5:8] = 0
        assert y.isfinite().all(), candidate.id


# Calls.


def ready(device: DeviceFacts) -> tuple[Plan, ConvProblem, Operands]:
    problem = STEM.problem(DType.FP32)
    return BACKEND.build(best(problem, device)[0], device), problem, Operands.of(problem, "cuda", integers=True)


def test_a_plan_can_be_captured_in_a_graph_with_its_weight(live: DeviceFacts) -> None:
    plan, problem, given = ready(live)
    plan(given.x, plan.prepare(given.w), given.bias, out=given.out)
    workspace = torch.empty(plan.workspace_bytes, dtype=torch.uint8, device="cuda")
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        plan(given.x, plan.prepare(given.w), given.bias, None, given.out, workspace)
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
    expected = exact(oracle(problem, given), problem)
    weight = plan.prepare(given.w)
    workspace = torch.empty(plan.workspace_bytes, dtype=torch.uint8, device="cuda")
    stream = torch.cuda.Stream()
    torch.cuda.synchronize()
    with torch.cuda.stream(stream):
        y = plan(given.x, weight, given.bias)
    x, w, bias, out, at = (each.data_ptr() for each in (given.x, weight, given.bias, given.out, workspace))
    plan.launch(x, w, bias, 0, out, at, stream.cuda_stream)
    stream.synchronize()
    assert y.stride() == problem.y.strides
    assert torch.equal(y, expected)
    assert torch.equal(given.out, expected)


@pytest.mark.parametrize(
    ("place", "largest", "memory_format"),
    [(0, 1e-6, torch.channels_last), (1, 1e-3, torch.contiguous_format)],
    ids=["3xfp16", "scaled-fp16"],
)
def test_a_training_step_has_its_stem_from_it(
    place: int, largest: float, memory_format: torch.memory_format, live: DeviceFacts
) -> None:
    x = torch.randn(4, 3, 64, 64, device="cuda").to(memory_format=memory_format)
    w = torch.randn(64, 3, 7, 7, device="cuda", requires_grad=True)
    dy = torch.randn(4, 64, 32, 32, device="cuda").to(memory_format=memory_format)
    asked = cw.algorithms(forward=algorithms_of(DType.FP32)[place].id)
    with torch.backends.cudnn.flags(enabled=True, allow_tf32=place == 1), asked:
        y = cw.conv2d(x, w, stride=2, padding=3)
        y.backward(dy)
    wide = w.detach().double().requires_grad_()
    expected = F.conv2d(x.double(), wide, stride=2, padding=3)
    expected.backward(dy.double())
    assert w.grad is not None
    assert wide.grad is not None
    assert relative(y.detach(), expected.detach()) < largest
    assert relative(w.grad, wide.grad) < 2e-3


def test_offsets_beyond_32_bits(live: DeviceFacts, much_memory: Callable[[int], None]) -> None:
    """Of operands that are slices of far wider buffers, whose images lie far from each other."""
    problem = Case((40, 3, 128, 128), (32, 3, 3, 3), padding=SAME, slack=4093).problem(DType.FP32)
    much_memory(2 * (problem.x.span_bytes + problem.y.span_bytes))
    given = Operands.of(problem, "cuda", integers=True)
    candidate = best(problem, live)[0]
    assert torch.equal(run(candidate, live, given), exact(oracle(problem, given), problem)), candidate.id
