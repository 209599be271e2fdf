"""Every configuration of products of boxes computes right on the GPU at hand."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F

from backends.triton_interpreted.boxed_gemm_cases import ALGORITHM, SAME, SERVED, every_tile, in_whole_numbers, sliced
from backends.triton_interpreted.cases import Case, Operands, exact, oracle
from convwright.backends.triton.backend import TritonKernels
from convwright.core.candidate import Candidate
from convwright.core.device import DeviceFacts
from convwright.core.dtype import Arithmetic, DType
from convwright.core.plan import Plan
from convwright.core.problem import ConvProblem
from gpu.own_kernels import ON_HOPPER, candidates
from gpu.right import relative

pytest.importorskip("triton")
pytestmark = ON_HOPPER

BACKEND = TritonKernels()
LAYERS = {
    "ResNet 3x3": Case((4, 256, 14, 14), (256, 256, 3, 3), padding=SAME, epilogue="bias+relu"),
    "ResNet 1x1": Case((4, 256, 14, 14), (1024, 256, 1, 1), epilogue="residual+bias+relu"),
    "ResNet 3x3, strided": Case((5, 128, 56, 56), (136, 128, 3, 3), (2, 2), SAME, epilogue="bias+relu"),
    "ResNet 1x1, strided": Case((3, 256, 56, 56), (512, 256, 1, 1), (2, 2), epilogue="bias"),
    "C3D 3x3x3": Case((2, 64, 8, 28, 28), (64, 64, 3, 3, 3), (1, 1, 1), (SAME[0],) * 3, (1, 1, 1), "bias+relu"),
    "EfficientNet 3x3": Case((5, 40, 28, 29), (120, 40, 3, 3), padding=SAME, epilogue="bias"),
    "VGG 3x3": Case((3, 64, 57, 61), (128, 64, 3, 3), padding=SAME, epilogue="bias+hardswish"),
    "Inception 1x1 to 1001": Case((8, 1024, 7, 7), (1001, 1024, 1, 1), epilogue="bias+relu"),
    "YOLO 3x3 to 255": Case((2, 256, 19, 20), (255, 256, 3, 3), padding=SAME, epilogue="residual+bias+relu"),
    "C3D 3x3x3 to 101": Case((2, 64, 4, 14, 14), (101, 64, 3, 3, 3), (1, 1, 1), (SAME[0],) * 3, (1, 1, 1), "bias"),
    "many tiles for each program": Case((9, 64, 75, 90), (264, 64, 3, 3), padding=SAME, epilogue="residual+bias+relu"),
}
ALL_CASES = SERVED | LAYERS
LARGEST_ERROR = {Arithmetic.FP16_ACC32: 6e-4, Arithmetic.BF16_ACC32: 5e-3}
DTYPES = (DType.FP16, DType.BF16)


def some(name: str, problem: ConvProblem, device: DeviceFacts) -> list[Candidate]:
    """All that are offered for a layer, and every third for a small problem: each kernel has to be compiled."""
    return candidates(ALGORITHM, problem, device)[:: 1 if name in LAYERS else 3]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", ALL_CASES)
def test_small_integers_come_out_exactly(name: str, dtype: DType, live: DeviceFacts) -> None:
    case = in_whole_numbers(ALL_CASES[name])
    for problem in (case.problem(dtype), sliced(replace(case, slack=8).problem(dtype))):
        given = Operands.of(problem, "cuda", integers=True)
        expected = exact(oracle(problem, given), problem)
        for candidate in some(name, problem, live):
            assert torch.equal(given.computed(BACKEND.build(candidate, live)), expected), candidate.id


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", ["many tiles for each program", "VGG 3x3"])
def test_every_tile_computes_several_in_each_program(name: str, dtype: DType, live: DeviceFacts) -> None:
    problem = replace(ALL_CASES[name], epilogue="bias+relu").problem(dtype)
    given = Operands.of(problem, "cuda", integers=True)
    expected = exact(oracle(problem, given), problem)
    for candidate in every_tile(problem, 7):
        assert torch.equal(given.computed(BACKEND.build(candidate, live)), expected), candidate.id


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", ALL_CASES)
def test_errors_stay_within_what_the_arithmetic_allows(name: str, dtype: DType, live: DeviceFacts) -> None:
    problem = ALL_CASES[name].problem(dtype)
    given = Operands.of(problem, "cuda", integers=False)
    expected = oracle(problem, given)
    for candidate in some(name, problem, live):
        error = relative(given.computed(BACKEND.build(candidate, live)), expected)
        assert error <= LARGEST_ERROR[candidate.arithmetic], f"{candidate.id}: {error:.2e}"


@pytest.mark.parametrize("value", [float("inf"), float("-inf"), float("nan")])
@pytest.mark.parametrize("place", ["x", "w"])
def test_what_is_not_finite_lands_where_it_belongs(value: float, place: str, live: DeviceFacts) -> None:
    problem = Case((2, 64, 9, 10), (72, 64, 3, 3), padding=SAME).problem(DType.FP16)
    given = Operands.of(problem, "cuda", integers=False)
    getattr(given, place)[1, 3, 1, 1] = value
    # On the CPU, whose float64 convolution is a plain matrix product: what is not finite goes where IEEE sends it.
    expected = F.conv2d(given.x.double().cpu(), given.w.double().cpu(), padding=1).half().cuda()
    for candidate in candidates(ALGORITHM, problem, live):
        y = given.computed(BACKEND.build(candidate, live))
        assert torch.allclose(y, expected, equal_nan=True, rtol=2e-2, atol=5e-2), candidate.id


@pytest.mark.parametrize("channels", [24, 20])
@pytest.mark.parametrize("dtype", DTYPES)
def test_what_lies_beside_an_output_stays_as_it_is(dtype: DType, channels: int, live: DeviceFacts) -> None:
    """Channels of others in the same pixels, where these end at a multiple of 16 bytes and where they do not."""
    case = Case((3, 64, 9, 13), (channels, 64, 3, 3), padding=SAME, epilogue="bias", slack=8)
    problem = sliced(case.problem(dtype))
    given = Operands.of(problem, "cuda", integers=True)
    expected = exact(oracle(problem, given), problem)
    whole = torch.empty((3, channels + 8, 9, 13), dtype=given.x.dtype, device="cuda", memory_format=torch.channels_last)
    for candidate in candidates(ALGORITHM, problem, live):
        whole.fill_(float("nan"))
        plan = BACKEND.build(candidate, live)
        plan(given.x, plan.prepare(given.w), given.bias, None, whole[:, :channels])
        assert torch.equal(whole[:, :channels], expected), candidate.id
        assert whole[:, channels:].isnan().all(), candidate.id


def ready(device: DeviceFacts) -> tuple[Plan, ConvProblem, Operands]:
    problem = LAYERS["many tiles for each program"].problem(DType.FP16)
    plan = BACKEND.build(candidates(ALGORITHM, problem, device)[0], device)
    return plan, problem, Operands.of(problem, "cuda", integers=True)


def test_a_plan_can_be_captured_in_a_graph(live: DeviceFacts) -> None:
    plan, problem, given = ready(live)
    weight = plan.prepare(given.w)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        plan(given.x, weight, given.bias, given.residual, given.out)
    given.x.neg_()
    given.out.fill_(float("nan"))
    graph.replay()
    assert torch.equal(given.out, exact(oracle(problem, given), problem))


def test_two_streams_describe_their_operands_apart(live: DeviceFacts) -> None:
    """One plan on two streams at once, whose calls read and write different tensors."""
    plan, problem, given = ready(live)
    weight = plan.prepare(given.w)
    inputs = [given.x, given.x.neg()]
    expected = [exact(oracle(problem, replace(given, x=x)), problem) for x in inputs]
    streams = [torch.cuda.Stream(), torch.cuda.Stream()]
    torch.cuda.synchronize()
    found: list[list[torch.Tensor]] = [[], []]
    for _ in range(20):
        for place, stream in enumerate(streams):
            with torch.cuda.stream(stream):
                found[place].append(plan(inputs[place], weight, given.bias, given.residual))
    torch.cuda.synchronize()
    for each, right in zip(found, expected, strict=True):
        assert all(torch.equal(y, right) for y in each)


def test_a_plan_that_was_written_runs_as_it_was(live: DeviceFacts) -> None:
    plan, problem, given = ready(live)
    text = BACKEND.written(plan)
    assert text is not None
    again = BACKEND.read(plan.candidate, live, text)
    assert torch.equal(given.computed(again), exact(oracle(problem, given), problem))
