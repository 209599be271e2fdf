"""Every tile of the staged weight's gradient computes right on the GPU at hand."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import cycle
from math import inf, nan

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

import convwright as cw
from backends.triton_interpreted.cases import Case
from backends.triton_interpreted.fp16_parts_cases import (
    BESIDE_AN_INFINITY,
    LARGEST_ERROR,
    NON_FINITE_BITS,
    each_is_near,
    lies_as_ieee_says,
    number,
    of_one_sign,
)
from backends.triton_interpreted.staged_weight_gradient_cases import ALGORITHM, NAMES, SAME, SERVED, all_tiles
from backends.triton_interpreted.weight_gradient_cases import Operands, gradient, with_gaps
from convwright.backends.triton.backend import TritonKernels
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
# Of those that the interpreter computes, each unlike the others.
SMALL = (
    "pointwise, strided", "slice of a wider buffer", "groups that fill no tile", "any window of a volume",
    "groups of a volume",
)  # fmt: skip
LAYER = Case((4, 256, 14, 14), (256, 256, 3, 3), padding=SAME)
LONG = Case((32, 16, 57, 57), (24, 16, 1, 1))
# 70 and 75 channels fill no tile, 918 pixels leave a tail in steps and parts; its kernels serve many tests.
TAILS = Case((3, 70, 17, 18), (75, 70, 3, 3), padding=SAME)


def run(candidate: Candidate, device: DeviceFacts, given: Operands) -> Tensor:
    return given.computed(BACKEND.build(candidate, device))


def best(problem: ConvProblem, device: DeviceFacts) -> list[Candidate]:
    """Of each algorithm: every kernel has to be compiled."""
    found = candidates(ALGORITHM, problem, device)
    return [next(each for each in found if each.algorithm == name) for name in NAMES]


def tails(layout: Layout) -> tuple[ConvProblem, list[Candidate]]:
    """Half of all tiles, each third of them in parts of which the last has fewer steps."""
    problem = gradient(TAILS, DType.FP32, layout, layout, layout)
    turns = zip(all_tiles(problem, 1), all_tiles(problem, 4), cycle((False, False, True)), strict=False)
    return problem, [parted if in_parts else whole for whole, parted, in_parts in turns][layout is Layout.NCHW :: 2]


@pytest.mark.parametrize(("turn", "name"), list(enumerate(SMALL)))
def test_small_integers_come_out_exactly(turn: int, name: str, live: DeviceFacts) -> None:
    layouts = (LAYOUTS[turn // 4 % 2], LAYOUTS[turn % 2], LAYOUTS[turn // 2 % 2])
    problem = gradient(SERVED[name], DType.FP32, *layouts)
    problem = with_gaps(problem) if turn % 2 else problem
    given = Operands.of(problem, "cuda", integers=True)
    tiles = all_tiles(problem, 1 + turn % 3)
    candidate = tiles[5 * turn % len(tiles)]
    assert torch.equal(run(candidate, live, given), given.expected(problem).float()), candidate.id


@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_tile_handles_its_tails(layout: Layout, live: DeviceFacts) -> None:
    problem, tiles = tails(layout)
    given = Operands.of(problem, "cuda", integers=True)
    expected = given.expected(problem).float()
    for candidate in tiles:
        assert torch.equal(run(candidate, live, given), expected), candidate.id


@pytest.mark.parametrize("case", [LAYER, LONG], ids=["ResNet 3x3", "103,968 terms"])
def test_layers_are_right_and_have_equal_bits_from_run_to_run(case: Case, live: DeviceFacts) -> None:
    problem = gradient(case, DType.FP32)
    whole, real = (Operands.of(problem, "cuda", integers=integers) for integers in (True, False))
    sums, expected = whole.expected(problem).float(), real.expected(problem)
    for candidate in best(problem, live):
        assert torch.equal(run(candidate, live, whole), sums), candidate.id
        dw = run(candidate, live, real).clone()
        error = relative(dw, expected)
        assert error <= LARGEST_ERROR[candidate.arithmetic], f"{candidate.id}: {error:.2e}"
        for _ in range(3):
            assert torch.equal(run(candidate, live, real), dw), candidate.id


# What it errs.


@pytest.mark.parametrize("case", [LAYER, LONG], ids=["ResNet 3x3", "103,968 terms"])
def test_errors_keep_the_rule_on_every_kind_of_data(case: Case, live: DeviceFacts) -> None:
    """Beside PyTorch's own call, of one fp16 number with TF32 on and else with TF32 off, infinities and NaNs among the
    data."""
    problem = gradient(case, DType.FP32)
    check = ErrorCheck(problem, "cuda")

    def by_torch(given: dict[Role, Tensor]) -> Tensor:
        x, dy = given[Role.X], given[Role.DY]
        return torch.nn.grad.conv2d_weight(x, problem.w.shape, dy, padding=[before for before, _ in problem.padding])

    for candidate in best(problem, live):
        scaled = candidate.arithmetic is Arithmetic.SCALED_FP16
        with torch.backends.cudnn.flags(enabled=True, allow_tf32=scaled):
            baseline = check.errors(by_torch)
        if scaled and next(each for each in baseline if each.kind == "normal").relative_l2 < 1e-5:
            continue  # PyTorch does not compute this in TF32
        plan = BACKEND.build(candidate, live)
        errors = check.errors(lambda given, plan=plan: plan(given[Role.X], given[Role.DY]))
        assert error_objection(problem, errors, baseline, Policy()) is None, candidate.id


def test_a_long_sum_of_one_sign_is_no_worse_than_pytorchs(live: DeviceFacts) -> None:
    problem = gradient(LONG, DType.FP32)
    given = Operands.of(problem, "cuda", integers=False)
    of_one_sign(given.x, given.dy)
    expected = given.expected(problem)
    for candidate in best(problem, live):
        with torch.backends.cudnn.flags(enabled=True, allow_tf32=candidate.arithmetic is Arithmetic.SCALED_FP16):
            torch_error = relative(torch.nn.grad.conv2d_weight(given.x, problem.w.shape, given.dy), expected)
        error = relative(run(candidate, live, given), expected)
        allowed = max(torch_error, LARGEST_ERROR[candidate.arithmetic])
        assert error <= allowed, f"{candidate.id}: {error:.2e}, PyTorch {torch_error:.2e}"


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("operand", ["x", "dy"])
def test_channels_are_as_precise_beside_others_of_any_magnitude(
    operand: str, layout: Layout, live: DeviceFacts
) -> None:
    problem, tiles = tails(layout)
    given = Operands.of(problem, "cuda", integers=False)
    of_one_sign(given.x, given.dy)
    values: Tensor = getattr(given, operand)
    values.mul_(torch.tensor([1e-20, 1e10, 1.0], device="cuda").repeat(25)[: values.shape[1]].view(1, -1, 1, 1))
    expected = given.expected(problem)
    for candidate in tiles[::2]:
        assert each_is_near(run(candidate, live, given), expected, candidate.arithmetic), candidate.id


# What is not finite.


def by_ieee(problem: ConvProblem, given: Operands) -> Tensor:
    """On the CPU, whose float64 convolution is a plain matrix product: what is not finite goes where IEEE sends it."""
    return replace(given, x=given.x.cpu(), dy=given.dy.cpu()).expected(problem).cuda()


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("bits", NON_FINITE_BITS)
@pytest.mark.parametrize("place", ["x", "dy"])
def test_what_is_not_finite_lands_where_it_belongs(bits: int, place: str, layout: Layout, live: DeviceFacts) -> None:
    problem, tiles = tails(layout)
    given = Operands.of(problem, "cuda", integers=False)
    getattr(given, place)[1, 3, 5, 6] = number(bits).to("cuda")
    expected = by_ieee(problem, given)
    for candidate in tiles:
        assert lies_near(run(candidate, live, given), expected, candidate), candidate.id


def lies_near(dw: Tensor, expected: Tensor, candidate: Candidate) -> bool:
    """Sums of so many products are larger than of order 1."""
    size = float(expected[expected.isfinite()].abs().max())
    return lies_as_ieee_says(dw / size, expected / size, candidate.arithmetic)


@pytest.mark.parametrize("infinite", ["x", "dy"])
def test_an_infinity_meets_any_number_as_ieee_says(infinite: str, live: DeviceFacts) -> None:
    """One of each sign in channels of one operand, and by them each of these in a channel of the other."""
    problem, tiles = tails(Layout.NHWC)
    given = Operands.of(problem, "cuda", integers=False)
    other = given.dy if infinite == "x" else given.x
    getattr(given, infinite)[0, :2, 5, 6] = torch.tensor([inf, -inf], device="cuda")
    other[0, : len(BESIDE_AN_INFINITY), 5, 6] = torch.tensor(BESIDE_AN_INFINITY, device="cuda")
    expected = by_ieee(problem, given)
    for candidate in tiles:
        assert lies_near(run(candidate, live, given), expected, candidate), candidate.id


@pytest.mark.parametrize(("others", "beside"), [(0.0, 1e-4), (1e-30, 1e-20), (1e30, 1e5)])
def test_an_infinity_among_numbers_of_any_magnitude_stays_one(others: float, beside: float, live: DeviceFacts) -> None:
    problem, tiles = tails(Layout.NHWC)
    given = Operands.of(problem, "cuda", integers=False)
    of_one_sign(given.x, given.dy)
    given.x[:, 3].mul_(others)
    given.dy.mul_(beside)
    given.x[1, 3, 5, 6] = -inf
    for candidate in tiles:
        dw = run(candidate, live, given)
        assert dw[:, 3].eq(-inf).all(), candidate.id
        assert dw[:, :3].isfinite().all(), candidate.id


# Calls.


def ready(device: DeviceFacts) -> tuple[Plan, ConvProblem, Operands]:
    problem = gradient(LAYER, DType.FP32)
    return BACKEND.build(best(problem, device)[0], device), problem, Operands.of(problem, "cuda", integers=True)


def test_a_plan_can_be_captured_in_a_graph(live: DeviceFacts) -> None:
    plan, problem, given = ready(live)
    workspace = torch.empty(plan.workspace_bytes, dtype=torch.uint8, device="cuda")
    plan(given.x, given.dy, out=given.out, workspace=workspace)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        plan(given.x, given.dy, out=given.out, workspace=workspace)
    given.x.neg_()
    given.dy.mul_(2)
    given.out.fill_(nan)
    workspace.fill_(0xFF)
    graph.replay()
    assert torch.equal(given.out, given.expected(problem).float())


def test_a_plan_runs_on_the_current_stream_and_on_addresses(live: DeviceFacts) -> None:
    plan, problem, given = ready(live)
    assert isinstance(plan, Launchable)
    expected = given.expected(problem).float()
    workspace = torch.empty(plan.workspace_bytes, dtype=torch.uint8, device="cuda")
    stream = torch.cuda.Stream()
    torch.cuda.synchronize()
    with torch.cuda.stream(stream):
        dw = plan(given.x, given.dy)
    addresses = [given.x.data_ptr(), given.dy.data_ptr(), 0, 0, given.out.data_ptr(), workspace.data_ptr()]
    plan.launch(*addresses, stream.cuda_stream)
    stream.synchronize()
    assert dw.stride() == problem.w.strides
    assert torch.equal(dw, expected)
    assert torch.equal(given.out, expected)


@pytest.mark.parametrize(("place", "largest"), [(0, 1e-6), (1, 1e-3)])
def test_a_training_step_has_its_weights_gradient_from_it(place: int, largest: float, live: DeviceFacts) -> None:
    x = torch.randn(8, 64, 28, 28, device="cuda").to(memory_format=torch.channels_last)
    w = torch.randn(96, 64, 3, 3, device="cuda", requires_grad=True)
    dy = torch.randn(8, 96, 28, 28, device="cuda")
    asked = cw.algorithms(backward_weight=f"triton/{NAMES[place]}")
    with torch.backends.cudnn.flags(enabled=True, allow_tf32=place == 1), asked:
        cw.conv2d(x, w, padding=1).backward(dy)
    exact = w.detach().double().requires_grad_()
    F.conv2d(x.double(), exact, padding=1).backward(dy.double())
    assert w.grad is not None
    assert exact.grad is not None
    assert relative(w.grad, exact.grad) < largest


def test_offsets_beyond_32_bits(live: DeviceFacts, much_memory: Callable[[int], None]) -> None:
    """Of operands that are slices of far wider buffers, whose images lie far from each other."""
    problem = gradient(Case((40, 32, 128, 128), (32, 32, 1, 1), slack=4064), DType.FP32)
    much_memory(2 * (problem.x.span_bytes + problem.y.span_bytes))
    given = Operands.of(problem, "cuda", integers=True)
    candidate = best(problem, live)[0]
    assert torch.equal(run(candidate, live, given), given.expected(problem).float()), candidate.id
