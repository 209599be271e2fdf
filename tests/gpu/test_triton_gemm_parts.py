"""The implicit GEMM with its sum in parts, and with more stages, computes right on the GPU at hand."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import cycle

import pytest
import torch
import torch.nn.functional as F

from backends.triton_interpreted.cases import CASES, PLANES, VOLUMES, WIDE_GROUPS, Case, Operands, exact, oracle
from backends.triton_interpreted.gemm_parts_cases import TILES, of_parts
from convwright.backends.triton.backend import TritonKernels
from convwright.backends.triton.gemm.tiles import Tile
from convwright.core.candidate import Candidate
from convwright.core.device import DeviceFacts
from convwright.core.direction import Role
from convwright.core.dtype import Arithmetic, DType
from convwright.core.error_rule import error_objection
from convwright.core.policy import Policy
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
SAME = ((1, 1), (1, 1))
LAYERS = {
    "3x3 of 256 on 14x14": Case((1, 256, 14, 14), (256, 256, 3, 3), padding=SAME, epilogue="bias+relu"),
    "1x1 of 2048 on 7x7": Case((1, 2048, 7, 7), (512, 2048, 1, 1), epilogue="residual+bias+relu"),
    "a classifier": Case((32, 1024, 1, 1), (1001, 1024, 1, 1), epilogue="bias"),
}
DTYPES = [DType.FP16, DType.BF16, DType.FP32]
LARGEST_ERROR = {
    Arithmetic.FP16_ACC32: 6e-4,
    Arithmetic.BF16_ACC32: 5e-3,
    Arithmetic.TF32: 2e-3,
    Arithmetic.TF32X3: 5e-7,
}

EVERY = CASES | VOLUMES | WIDE_GROUPS


def offered(problem: ConvProblem, device: DeviceFacts) -> list[Candidate]:
    """All of the implicit GEMM that are in parts or have more stages than others of the same tile."""
    found = [each for each in BACKEND.candidates(problem, device, Policy()) if isinstance(each, Candidate)]
    gemms = [each for each in found if each.algorithm.startswith("implicit-gemm")]
    least: dict[tuple[str, Tile], int] = {}
    for each in gemms:
        tile = Tile.of(each)
        key = each.algorithm, replace(tile, stages=0)
        least[key] = min(least.get(key, tile.stages), tile.stages)
    deeper = [each for each in gemms if Tile.of(each).stages > least[each.algorithm, replace(Tile.of(each), stages=0)]]
    return [each for each in gemms if Tile.of(each).in_parts or each in deeper]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", LAYERS)
def test_what_is_offered_computes_small_integers_exactly(name: str, dtype: DType, live: DeviceFacts) -> None:
    problem = LAYERS[name].problem(dtype)
    given = Operands.of(problem, "cuda", integers=True)
    expected = exact(oracle(problem, given), problem)
    found = offered(problem, live)
    assert any(Tile.of(each).in_parts for each in found)
    for candidate in found:
        assert torch.equal(given.computed(BACKEND.build(candidate, live)), expected), candidate.id


# Each case with another number of parts, among which are some that steps do not divide into.
@pytest.mark.parametrize(
    ("name", "parts", "dtype"), [*zip(EVERY, cycle((2, 3, 5)), cycle((*DTYPES, DType.FP32)), strict=False)]
)
def test_every_kind_of_problem_may_be_in_parts(name: str, parts: int, dtype: DType, live: DeviceFacts) -> None:
    problem = EVERY[name].problem(dtype)
    given = Operands.of(problem, "cuda", integers=True)
    expected = exact(oracle(problem, given), problem)
    for candidate in of_parts(problem, parts):
        assert torch.equal(given.computed(BACKEND.build(candidate, live)), expected), candidate.id


@pytest.mark.parametrize(("x", "y"), PLANES)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("name", "parts"), [("odd channels", 3), ("slice of a wider buffer", 5), ("stem", 2)])
def test_operands_may_lie_in_planes(
    name: str, parts: int, dtype: DType, x: Layout, y: Layout, live: DeviceFacts
) -> None:
    problem = CASES[name].problem(dtype, x, y)
    given = Operands.of(problem, "cuda", integers=True)
    expected = exact(oracle(problem, given), problem)
    for candidate in of_parts(problem, parts)[::2]:
        assert torch.equal(given.computed(BACKEND.build(candidate, live)), expected), candidate.id


@pytest.mark.parametrize("parts", [16, 36, 72])
def test_many_parts_add_up(parts: int, live: DeviceFacts) -> None:
    problem = LAYERS["3x3 of 256 on 14x14"].problem(DType.FP16)
    given = Operands.of(problem, "cuda", integers=True)
    expected = exact(oracle(problem, given), problem)
    for candidate in of_parts(problem, parts):
        assert torch.equal(given.computed(BACKEND.build(candidate, live)), expected), candidate.id


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", LAYERS)
def test_errors_stay_within_what_the_arithmetic_allows(name: str, dtype: DType, live: DeviceFacts) -> None:
    problem = LAYERS[name].problem(dtype)
    given = Operands.of(problem, "cuda", integers=False)
    expected = oracle(problem, given)
    for candidate in offered(problem, live):
        error = relative(given.computed(BACKEND.build(candidate, live)), expected)
        assert error <= LARGEST_ERROR[candidate.arithmetic], f"{candidate.id}: {error:.2e}"


@pytest.mark.parametrize("dtype", DTYPES)
def test_errors_keep_the_rule_on_every_kind_of_data(dtype: DType, live: DeviceFacts) -> None:
    """Beside PyTorch's own call with TF32 off, infinities and NaNs among the data."""
    problem = Case((1, 128, 14, 14), (96, 128, 3, 3), padding=SAME).problem(dtype)
    check = ErrorCheck(problem, "cuda")
    with torch.backends.cudnn.flags(enabled=True, allow_tf32=False):
        baseline = check.errors(lambda given: F.conv2d(given[Role.X], given[Role.W], padding=1))
    for candidate in of_parts(problem, 5):
        if candidate.arithmetic is not Arithmetic.TF32:
            plan = BACKEND.build(candidate, live)
            errors = check.errors(lambda given, plan=plan: plan(given[Role.X], plan.prepare(given[Role.W])))
            assert error_objection(problem, errors, baseline, Policy()) is None, candidate.id


@pytest.mark.parametrize("bits", [0x7F800000, 0xFF800000, 0x7FC00000, 0x7FFFFFFF])
@pytest.mark.parametrize("place", ["x", "w"])
def test_what_is_not_finite_lands_where_it_belongs(bits: int, place: str, live: DeviceFacts) -> None:
    problem = Case((2, 64, 9, 10), (70, 64, 3, 3), padding=SAME).problem(DType.FP32)
    given = Operands.of(problem, "cuda", integers=False)
    special = torch.tensor(bits, dtype=torch.uint32).view(torch.float32)
    getattr(given, place)[1, 3, 1, 1] = special.to("cuda")
    # On the CPU, whose float64 convolution is a plain matrix product: what is not finite goes where IEEE sends it.
    expected = F.conv2d(given.x.double().cpu(), given.w.double().cpu(), padding=1).float().cuda()
    for candidate in of_parts(problem, 5):
        loose = (
            {"rtol": 1e-4, "atol": 1e-4} if candidate.arithmetic is Arithmetic.TF32X3 else {"rtol": 0.1, "atol": 0.5}
        )
        y = given.computed(BACKEND.build(candidate, live))
        assert torch.allclose(y, expected, equal_nan=True, **loose), candidate.id


def test_infinities_of_both_signs_in_two_parts_make_nan(live: DeviceFacts) -> None:
    problem = Case((1, 128, 1, 2), (3, 128, 1, 1)).problem(DType.FP32)
    given = Operands.of(problem, "cuda", integers=True)
    given.w.fill_(1)
    given.x[0, 0, 0, 0], given.x[0, 127, 0, 0] = float("inf"), float("-inf")
    given.x[0, 0, 0, 1] = float("inf")
    for candidate in of_parts(problem, 4):
        y = given.computed(BACKEND.build(candidate, live))
        assert y[0, :, 0, 0].isnan().all(), candidate.id
        assert y[0, :, 0, 1].eq(float("inf")).all(), candidate.id


@pytest.mark.parametrize("dtype", DTYPES)
def test_equal_calls_have_equal_bits(dtype: DType, live: DeviceFacts) -> None:
    problem = LAYERS["3x3 of 256 on 14x14"].problem(dtype)
    given = Operands.of(problem, "cuda", integers=False)
    for candidate in offered(problem, live):
        plan = BACKEND.build(candidate, live)
        once = given.computed(plan).clone()
        for _ in range(5):
            assert torch.equal(given.computed(plan), once), candidate.id


def test_a_plan_can_be_captured_in_a_graph(live: DeviceFacts) -> None:
    problem = LAYERS["3x3 of 256 on 14x14"].problem(DType.FP32)
    given = Operands.of(problem, "cuda", integers=True)
    plan = BACKEND.build(of_parts(problem, 6)[0], live)
    weight = plan.prepare(given.w)
    workspace = torch.empty(plan.workspace_bytes, dtype=torch.uint8, device="cuda")
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        plan(given.x, weight, given.bias, given.residual, given.out, workspace)
    given.x.neg_()
    given.out.fill_(float("nan"))
    workspace.fill_(0xFF)
    graph.replay()
    assert torch.equal(given.out, exact(oracle(problem, given), problem))


def test_a_plan_runs_on_the_current_stream_and_on_addresses(live: DeviceFacts) -> None:
    problem = LAYERS["1x1 of 2048 on 7x7"].problem(DType.FP16)
    given = Operands.of(problem, "cuda", integers=True)
    expected = exact(oracle(problem, given), problem)
    assert given.bias is not None
    assert given.residual is not None
    plan = BACKEND.build(of_parts(problem, 4, TILES[1:])[0], live)
    weight = plan.prepare(given.w)
    stream = torch.cuda.Stream()
    torch.cuda.synchronize()
    with torch.cuda.stream(stream):
        y = plan(given.x, weight, given.bias, given.residual)
    workspace = torch.empty(plan.workspace_bytes, dtype=torch.uint8, device="cuda")
    plan.launch(
        *(each.data_ptr() for each in (given.x, weight, given.bias, given.residual, given.out, workspace)),
        stream.cuda_stream,
    )
    stream.synchronize()
    assert y.stride() == problem.y.strides
    assert torch.equal(y, expected)
    assert torch.equal(given.out, expected)


def test_offsets_of_an_input_beyond_32_bits(live: DeviceFacts, much_memory: Callable[[int], None]) -> None:
    """One pixel of each image, 2^26 elements from the next."""
    problem = Case((40, 64, 1024, 1024), (16, 64, 1, 1), stride=(1024, 1024)).problem(DType.FP16)
    much_memory(2 * problem.x.nbytes)
    x = torch.empty(problem.x.shape, dtype=torch.float16, device="cuda", memory_format=torch.channels_last).zero_()
    x[39, :, 0, 0] = 1
    w = torch.ones(problem.w.shape, dtype=torch.float16, device="cuda")
    plan = BACKEND.build(of_parts(problem, 2)[0], live)
    y = plan(x, plan.prepare(w))
    assert y[39].eq(64).all()
    assert not y[:39].any()
