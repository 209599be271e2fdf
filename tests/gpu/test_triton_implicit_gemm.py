"""Every configuration of the implicit GEMM computes right on the GPU at hand."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F

from backends.triton_interpreted.cases import CASES, PLANES, VOLUMES, WIDE_GROUPS, Case, Operands, exact, oracle
from convwright.backends.triton.backend import TritonKernels
from convwright.backends.triton.gemm.algorithms import algorithms_of
from convwright.backends.triton.gemm.tiles import TILES
from convwright.backends.triton.implicit_gemm.offers import KERNEL
from convwright.core.candidate import Candidate, Source
from convwright.core.device import DeviceFacts
from convwright.core.dtype import Arithmetic, DType
from convwright.core.plan import Plan
from convwright.core.problem import ConvProblem
from convwright.core.tensor_spec import Layout
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
    "ResNet 3x3": Case((4, 256, 14, 14), (256, 256, 3, 3), padding=SAME, epilogue="bias+relu"),
    "ResNet 1x1": Case((4, 256, 14, 14), (1024, 256, 1, 1), epilogue="residual+bias+relu"),
    "ResNet stem": Case((2, 3, 224, 224), (64, 3, 7, 7), (2, 2), ((3, 3), (3, 3)), epilogue="bias+relu"),
}
MORE_LAYERS = {
    "ResNeXt 3x3": Case((4, 256, 28, 28), (256, 8, 3, 3), padding=SAME, epilogue="bias+relu", groups=32),
    "ResNeXt 3x3, strided": Case((4, 512, 28, 28), (512, 16, 3, 3), (2, 2), SAME, groups=32),
    "C3D 3x3x3": Case(
        (2, 64, 8, 28, 28), (64, 64, 3, 3, 3), (1, 1, 1), (SAME[0],) * 3, (1, 1, 1), epilogue="bias+relu"
    ),
    "R3D stem": Case((1, 3, 8, 56, 56), (64, 3, 3, 7, 7), (1, 2, 2), ((1, 1), (3, 3), (3, 3)), (1, 1, 1)),
}  # fmt: skip
ALL_CASES = CASES | VOLUMES | WIDE_GROUPS | LAYERS | MORE_LAYERS
LARGEST_ERROR = {
    Arithmetic.FP16_ACC32: 6e-4,
    Arithmetic.BF16_ACC32: 5e-3,
    Arithmetic.TF32: 2e-3,
    Arithmetic.TF32X3: 5e-7,
}


def some(name: str, problem: ConvProblem, device: DeviceFacts) -> list[Candidate]:
    """All that are offered for a layer, and every third for a small problem: each kernel has to be compiled."""
    return candidates(KERNEL, problem, device)[:: 1 if name in LAYERS else 3]


@pytest.mark.parametrize("dtype", [DType.FP16, DType.BF16, DType.FP32])
@pytest.mark.parametrize("name", ALL_CASES)
def test_small_integers_come_out_exactly(name: str, dtype: DType, live: DeviceFacts) -> None:
    problem = ALL_CASES[name].problem(dtype)
    given = Operands.of(problem, "cuda", integers=True)
    expected = exact(oracle(problem, given), problem)
    for candidate in some(name, problem, live):
        assert torch.equal(given.computed(BACKEND.build(candidate, live)), expected), candidate.id


@pytest.mark.parametrize(
    ("name", "lying", "dtype"), by_turns([*ALL_CASES], PLANES, [DType.FP16, DType.FP32, DType.BF16, DType.FP32])
)
def test_operands_may_lie_in_planes(name: str, lying: tuple[Layout, Layout], dtype: DType, live: DeviceFacts) -> None:
    x, y = lying
    problem = ALL_CASES[name].problem(dtype, x, y)
    given = Operands.of(problem, "cuda", integers=True)
    expected = exact(oracle(problem, given), problem)
    for candidate in candidates(KERNEL, problem, live)[::6]:
        assert torch.equal(given.computed(BACKEND.build(candidate, live)), expected), candidate.id


# In sixths, since each of them has to be compiled.
@pytest.mark.parametrize("first", range(6))
@pytest.mark.parametrize("dtype", [DType.FP16, DType.BF16, DType.FP32])
def test_every_tile_handles_its_tails_in_groups(dtype: DType, first: int, live: DeviceFacts) -> None:
    channels, layout = [(35, Layout.NHWC), (56, Layout.NCHW), (35, Layout.NCHW), (56, Layout.NHWC)][first % 4]
    padding = ((1, 0), (0, 1), (0, 0))
    case = Case((2, 2 * channels, 3, 9, 10), (70, channels, 2, 2, 1), (1, 2, 1), padding, (1, 1, 1), "bias", groups=2)
    problem = case.problem(dtype, layout, layout)
    given = Operands.of(problem, "cuda", integers=True)
    expected = exact(oracle(problem, given), problem)
    every = [
        Candidate(problem, "triton", algorithm.name, tile.config, algorithm.arithmetic, 0, True, Source.RULE)
        for algorithm in algorithms_of(KERNEL, dtype)
        for tile in TILES[algorithm.arithmetic]
    ]
    for candidate in every[first::6]:
        assert torch.equal(given.computed(BACKEND.build(candidate, live)), expected), candidate.id


@pytest.mark.parametrize("dtype", [DType.FP16, DType.BF16, DType.FP32])
@pytest.mark.parametrize("name", ALL_CASES)
def test_errors_stay_within_what_the_arithmetic_allows(name: str, dtype: DType, live: DeviceFacts) -> None:
    problem = ALL_CASES[name].problem(dtype)
    given = Operands.of(problem, "cuda", integers=False)
    expected = oracle(problem, given)
    for candidate in some(name, problem, live):
        error = relative(given.computed(BACKEND.build(candidate, live)), expected)
        assert error <= LARGEST_ERROR[candidate.arithmetic], f"{candidate.id}: {error:.2e}"


@pytest.mark.parametrize("positive", [False, True], ids=["normal", "positive"])
def test_a_long_sum_in_3xtf32_is_no_worse_than_fp32(positive: bool, live: DeviceFacts) -> None:
    problem = Case((2, 2048, 7, 7), (64, 2048, 3, 3), padding=SAME).problem(DType.FP32)
    given = Operands.of(problem, "cuda", integers=False)
    if positive:
        given.x.abs_()
        given.w.abs_()
    expected = oracle(problem, given)
    with torch.backends.cudnn.flags(enabled=True, allow_tf32=False):
        torch_error = relative(F.conv2d(given.x, given.w, padding=1), expected)
    for candidate in candidates(KERNEL, problem, live):
        if candidate.arithmetic is Arithmetic.TF32X3:
            error = relative(given.computed(BACKEND.build(candidate, live)), expected)
            assert error <= max(torch_error, 5e-7), f"{candidate.id}: {error:.2e}, PyTorch {torch_error:.2e}"


@pytest.mark.parametrize("bits", [0x7F800000, 0xFF800000, 0x7FC00000, 0x7FFFFFFF])
@pytest.mark.parametrize("place", ["x", "w"])
def test_what_is_not_finite_lands_where_it_belongs(bits: int, place: str, live: DeviceFacts) -> None:
    problem = Case((2, 64, 9, 10), (70, 64, 3, 3), padding=SAME).problem(DType.FP32)
    given = Operands.of(problem, "cuda", integers=False)
    special = torch.tensor(bits, dtype=torch.uint32).view(torch.float32)
    getattr(given, place)[1, 3, 1, 1] = special.to("cuda")
    # On the CPU, whose float64 convolution is a plain matrix product: what is not finite goes where IEEE sends it.
    expected = F.conv2d(given.x.double().cpu(), given.w.double().cpu(), padding=1).float().cuda()
    for candidate in candidates(KERNEL, problem, live):
        loose = (
            {"rtol": 1e-4, "atol": 1e-4} if candidate.arithmetic is Arithmetic.TF32X3 else {"rtol": 0.1, "atol": 0.5}
        )
        y = given.computed(BACKEND.build(candidate, live))
        assert torch.allclose(y, expected, equal_nan=True, **loose), candidate.id


def ready(dtype: DType, device: DeviceFacts) -> tuple[Plan, ConvProblem, Operands]:
    problem = LAYERS["ResNet 3x3"].problem(dtype)
    plan = BACKEND.build(candidates(KERNEL, problem, device)[0], device)
    return plan, problem, Operands.of(problem, "cuda", integers=True)


def test_a_plan_can_be_captured_in_a_graph(live: DeviceFacts) -> None:
    plan, problem, given = ready(DType.FP16, live)
    weight = plan.prepare(given.w)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        plan(given.x, weight, given.bias, given.residual, given.out)
    given.x.neg_()
    given.out.fill_(float("nan"))
    graph.replay()
    assert torch.equal(given.out, exact(oracle(problem, given), problem))


def test_a_plan_runs_on_the_current_stream_and_makes_its_output(live: DeviceFacts) -> None:
    plan, problem, given = ready(DType.FP16, live)
    stream = torch.cuda.Stream()
    torch.cuda.synchronize()
    with torch.cuda.stream(stream):
        y = plan(given.x, plan.prepare(given.w), given.bias, given.residual)
    stream.synchronize()
    assert y.stride() == problem.y.strides
    assert torch.equal(y, exact(oracle(problem, given), problem))


def test_offsets_beyond_32_bits(live: DeviceFacts, much_memory: Callable[[int], None]) -> None:
    problem = Case((40, 64, 1024, 1024), (16, 64, 1, 1)).problem(DType.FP16)
    much_memory(2 * (problem.x.nbytes + problem.y.nbytes))
    x = torch.zeros(problem.x.shape, dtype=torch.float16, device="cuda").to(memory_format=torch.channels_last)
    x[39].fill_(1)
    w = torch.ones(problem.w.shape, dtype=torch.float16, device="cuda")
    plan = BACKEND.build(candidates(KERNEL, problem, live)[0], live)
    y = plan(x, plan.prepare(w))
    assert y[39].eq(64).all()
    assert not y[:39].any()
