"""Every configuration of the kernel for few weights computes right on the GPU at hand."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from torch.nn import functional as F

import convwright as cw
from backends.triton_interpreted.cases import Case
from backends.triton_interpreted.few_weights_cases import FEW, LAYOUTS, MIXED, WINDOWS, all_patches, offered, ragged
from backends.triton_interpreted.weight_gradient_cases import Operands, gradient, with_gaps
from convwright.backends.triton.backend import TritonKernels
from convwright.backends.triton.parts.sums import sum_call
from convwright.core.candidate import Candidate
from convwright.core.device import DeviceFacts
from convwright.core.direction import Role
from convwright.core.dtype import DType
from convwright.core.error_rule import error_objection
from convwright.core.policy import Policy
from convwright.core.problem import ConvProblem
from convwright.core.tensor_spec import Layout
from convwright.measuring.checking.error import ErrorCheck
from convwright.tensors import torch_dtype
from gpu.own_kernels import by_turns
from gpu.right import relative

pytest.importorskip("triton")
pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device, PyTorch sees none"),
]

BACKEND = TritonKernels()
SAME = ((1, 1), (1, 1))
_PORTIONS = 48
LAYERS = {
    "depthwise": Case((4, 32, 112, 112), (32, 1, 3, 3), padding=SAME, groups=32),
    "depthwise 7x7": Case((4, 192, 28, 28), (192, 1, 7, 7), padding=((3, 3), (3, 3)), groups=192),
    "strided": Case((2, 48, 57, 113), (48, 1, 5, 5), (2, 2), ((2, 2), (2, 2)), groups=48),
    "causal": Case((4, 256, 2048), (256, 1, 4), (1,), ((3, 0),), (1,), groups=256),
    "dilated": Case((1, 50, 256, 256), (1, 50, 3, 3), (1, 1), ((5, 5), (5, 5)), (5, 5)),
    "one of one": Case((1, 1, 512, 512), (1, 1, 3, 3), padding=SAME),
    "groups of four": Case((8, 64, 28, 28), (64, 4, 3, 3), padding=SAME, groups=16),
    "sixteen of three": Case((4, 3, 64, 64), (16, 3, 3, 3), (2, 2), SAME),
    "depthwise volume": Case((2, 64, 8, 28, 28), (64, 1, 3, 3, 3), (1, 1, 1), (SAME[0],) * 3, (1, 1, 1), groups=64),
}
DTYPES = [DType.FP16, DType.BF16, DType.FP32]
LARGEST_ERROR = {DType.FP32: 2e-6, DType.FP16: 6e-4, DType.BF16: 5e-3}


def of_layer(name: str, dtype: DType, layouts: tuple[Layout, Layout]) -> ConvProblem:
    return gradient((FEW | LAYERS)[name], dtype, Layout.NCHW, *layouts)


@pytest.mark.parametrize(("name", "layouts", "dtype"), by_turns([*FEW, *LAYERS], [*LAYOUTS, *MIXED], DTYPES))
def test_small_integers_come_out_exactly(
    name: str, layouts: tuple[Layout, Layout], dtype: DType, live: DeviceFacts
) -> None:
    problem = of_layer(name, dtype, layouts)
    given = Operands.of(problem, "cuda", integers=True)
    expected = given.expected(problem).to(torch_dtype(dtype))
    found = offered(problem, live)
    assert found
    for candidate in found[:: 8 if layouts in MIXED else 4]:
        assert torch.equal(given.computed(BACKEND.build(candidate, live)), expected), candidate.id


# In portions, since each of them has to be compiled for up to a minute, and by turns in planes and with channels last.
@pytest.mark.parametrize("first", range(_PORTIONS))
def test_every_patch_handles_its_tails(first: int, live: DeviceFacts) -> None:
    dtype, layout = DTYPES[first % len(DTYPES)], (Layout.NCHW, Layout.NHWC)[first // len(DTYPES) % 2]
    for number in range(len(WINDOWS)):
        problem = ragged(number, dtype, layout)
        given = Operands.of(problem, "cuda", integers=True)
        expected = given.expected(problem).to(torch_dtype(dtype))
        for candidate in all_patches(problem, 1 + first % 3)[first * len(WINDOWS) + number :: _PORTIONS * len(WINDOWS)]:
            assert torch.equal(given.computed(BACKEND.build(candidate, live)), expected), candidate.id


@pytest.mark.parametrize("name", ["depthwise 7x7, flipped", "causal", "groups of four"])
def test_the_gradient_is_written_wherever_the_weight_lies(name: str, live: DeviceFacts) -> None:
    dense = of_layer(name, DType.FP32, LAYOUTS[0])
    for problem in (dense, with_gaps(dense)):
        given = Operands.of(problem, "cuda", integers=True)
        expected = given.expected(problem).float()
        for parts in (1, 3):
            plan = BACKEND.build(all_patches(problem, parts)[0], live)
            assert torch.equal(given.computed(plan), expected), plan.candidate.id


@pytest.mark.parametrize("parts", [2, 7, 33, 256, 300, 1046])
def test_any_number_of_parts_is_added(parts: int, live: DeviceFacts) -> None:
    problem = of_layer("depthwise", DType.FP32, LAYOUTS[0])
    given = Operands.of(problem, "cuda", integers=True)
    assert sum_call(problem, parts).constants["PARTS"] == parts
    plan = BACKEND.build(all_patches(problem, parts)[0], live)
    assert torch.equal(given.computed(plan), given.expected(problem).float())


@pytest.mark.parametrize(("name", "layouts", "dtype"), by_turns([*LAYERS], LAYOUTS, DTYPES))
def test_layers_are_right_and_equal_calls_have_equal_bits(
    name: str, layouts: tuple[Layout, Layout], dtype: DType, live: DeviceFacts
) -> None:
    problem = of_layer(name, dtype, layouts)
    given = Operands.of(problem, "cuda", integers=False)
    expected = given.expected(problem)
    for candidate in offered(problem, live):
        plan = BACKEND.build(candidate, live)
        once = given.computed(plan).clone()
        assert relative(once, expected) < LARGEST_ERROR[dtype], candidate.id
        assert torch.equal(given.computed(plan), once), candidate.id


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("layouts", LAYOUTS)
@pytest.mark.parametrize(
    "case",
    [Case((2, 64, 27, 29), (64, 1, 3, 3), padding=SAME, groups=64), Case((32, 4, 57, 57), (4, 2, 1, 1), groups=2)],
    ids=["3x3", "103,968 terms"],
)
def test_errors_keep_the_rule_on_every_kind_of_data(
    case: Case, layouts: tuple[Layout, Layout], dtype: DType, live: DeviceFacts
) -> None:
    """Beside PyTorch's own call with TF32 off, infinities and NaNs among the data."""
    problem = gradient(case, dtype, Layout.NCHW, *layouts)
    check = ErrorCheck(problem, "cuda")
    padding = [before for before, _ in problem.padding]

    def by_torch(given: dict[Role, torch.Tensor]) -> torch.Tensor:
        x, dy = given[Role.X], given[Role.DY]
        return torch.nn.grad.conv2d_weight(x, problem.w.shape, dy, padding=padding, groups=problem.groups)

    with torch.backends.cudnn.flags(enabled=True, allow_tf32=False):
        baseline = check.errors(by_torch)
    for candidate in offered(problem, live):
        plan = BACKEND.build(candidate, live)
        errors = check.errors(lambda given, plan=plan: plan(given[Role.X], given[Role.DY]))
        assert error_objection(problem, errors, baseline, Policy()) is None, candidate.id


@pytest.mark.parametrize("value", [math.inf, -math.inf, math.nan])
@pytest.mark.parametrize("place", ["x", "dy"])
@pytest.mark.parametrize("layouts", LAYOUTS)
def test_what_is_not_finite_lands_where_it_belongs(
    layouts: tuple[Layout, Layout], place: str, value: float, live: DeviceFacts
) -> None:
    """At an image's last pixel, which patches that reach beyond it read for pixels that are not there."""
    problem = gradient(Case((2, 5, 23, 29), (5, 1, 3, 3), groups=5), DType.FP32, Layout.NCHW, *layouts)
    given = Operands.of(problem, "cuda", integers=True)
    given.dy[given.dy == 0] = 1
    getattr(given, place)[1, 1, -1, -1] = value
    expected = given.expected(problem).float()
    assert not expected.isfinite().all()
    for candidate in [*offered(problem, live), *all_patches(problem, 2)[::37]]:
        dw = given.computed(BACKEND.build(candidate, live))
        assert torch.allclose(dw, expected, rtol=0, atol=0, equal_nan=True), candidate.id


def first(problem: ConvProblem, parts: int) -> Candidate:
    return all_patches(problem, parts)[0]


@pytest.mark.parametrize("parts", [1, 4])
def test_a_plan_can_be_captured_in_a_graph(parts: int, live: DeviceFacts) -> None:
    problem = of_layer("depthwise 7x7", DType.FP32, LAYOUTS[0])
    given = Operands.of(problem, "cuda", integers=True)
    plan = BACKEND.build(first(problem, parts), live)
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
    problem = of_layer("depthwise 7x7", DType.FP16, LAYOUTS[1])
    given = Operands.of(problem, "cuda", integers=True)
    expected = given.expected(problem).half()
    plan = BACKEND.build(first(problem, parts), live)
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


def test_a_depthwise_weights_gradient_is_computed_by_it_where_it_is_asked_for() -> None:
    x = torch.randn(8, 64, 28, 28, device="cuda")
    w = torch.randn(64, 1, 3, 3, device="cuda", requires_grad=True)
    dy = torch.randn(8, 64, 28, 28, device="cuda")
    with cw.algorithms(backward_weight="triton/few-weights"):
        cw.conv2d(x, w, padding=1, groups=64).backward(dy)
    exact = w.detach().double().requires_grad_()
    F.conv2d(x.double(), exact, padding=1, groups=64).backward(dy.double())
    assert w.grad is not None
    assert exact.grad is not None
    assert (w.grad.double() - exact.grad).norm() / exact.grad.norm() < 1e-6


@pytest.mark.parametrize("layout", [Layout.NCHW, Layout.NHWC])
def test_offsets_beyond_32_bits(layout: Layout, live: DeviceFacts, much_memory: Callable[[int], None]) -> None:
    case = Case((40, 64, 1024, 1024), (64, 1, 1, 1), groups=64)
    problem = gradient(case, DType.FP16, Layout.NCHW, layout, layout)
    much_memory(2 * (problem.x.nbytes + problem.y.nbytes))
    order = torch.channels_last if layout is Layout.NHWC else torch.contiguous_format
    x, dy = (
        torch.empty(spec.shape, dtype=torch.float16, device="cuda", memory_format=order).zero_()
        for spec in (problem.x, problem.y)
    )
    x[39, 63, 1023, 1000:] = 1
    dy[39, 63, 1023, 1020:] = 2
    dw = BACKEND.build(offered(problem, live)[0], live)(x, dy)
    assert dw[63].item() == 8
    assert dw.sum().item() == 8
