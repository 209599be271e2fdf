"""Every configuration of a weight's gradient in boxes computes right on the GPU at hand."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional as F

from backends.triton_interpreted.boxed_weight_gradient_cases import ALGORITHM, SAME, SERVED, every_tile, posed
from backends.triton_interpreted.cases import Case
from backends.triton_interpreted.weight_gradient_cases import Operands
from convwright.backends.triton.backend import TritonKernels
from convwright.core.candidate import Candidate
from convwright.core.device import DeviceFacts
from convwright.core.direction import Role
from convwright.core.dtype import DType
from convwright.core.error_rule import error_objection
from convwright.core.policy import Policy
from convwright.core.problem import ConvProblem
from convwright.measuring.checking.error import ErrorCheck
from convwright.tensors import torch_dtype
from gpu.own_kernels import ON_HOPPER, candidates
from gpu.right import relative

pytest.importorskip("triton")
pytestmark = ON_HOPPER

BACKEND = TritonKernels()
LAYERS = {
    "ResNet 3x3": Case((32, 256, 14, 14), (256, 256, 3, 3), padding=SAME),
    "ResNet 1x1": Case((4, 256, 14, 14), (1024, 256, 1, 1)),
    "ResNet 3x3, strided": Case((5, 128, 56, 56), (136, 128, 3, 3), (2, 2), SAME),
    "C3D 3x3x3": Case((2, 64, 8, 28, 28), (64, 64, 3, 3, 3), (1, 1, 1), (SAME[0],) * 3, (1, 1, 1)),
    "VGG 3x3": Case((3, 64, 57, 61), (128, 64, 3, 3), padding=SAME),
}
ALL_CASES = SERVED | LAYERS
DTYPES = (DType.FP16, DType.BF16)
LARGEST_ERROR = {DType.FP16: 6e-4, DType.BF16: 5e-3}


def some(name: str, problem: ConvProblem, device: DeviceFacts) -> list[Candidate]:
    """All that are offered for a layer, and every third for a small problem: each kernel has to be compiled."""
    return candidates(ALGORITHM, problem, device)[:: 1 if name in LAYERS else 3]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("place", "name"), [*enumerate(ALL_CASES)])
def test_small_integers_come_out_exactly(place: int, name: str, dtype: DType, live: DeviceFacts) -> None:
    problem = posed(ALL_CASES[name], dtype, slack=8 * (place % 2))
    given = Operands.of(problem, "cuda", integers=True)
    expected = given.expected(problem).to(torch_dtype(dtype))
    for candidate in some(name, problem, live):
        assert torch.equal(given.computed(BACKEND.build(candidate, live)), expected), candidate.id


@pytest.mark.parametrize("first", range(4))
@pytest.mark.parametrize("dtype", DTYPES)
def test_every_tile_handles_its_tails(dtype: DType, first: int, live: DeviceFacts) -> None:
    """In quarters, since each of them has to be compiled."""
    problem = posed(Case((3, 136, 9, 18), (72, 136, 2, 1), padding=((1, 0), (0, 0)), stride=(2, 2)), dtype)
    given = Operands.of(problem, "cuda", integers=True)
    expected = given.expected(problem).to(torch_dtype(dtype))
    for candidate in every_tile(problem, 1 + first)[first::4]:
        assert torch.equal(given.computed(BACKEND.build(candidate, live)), expected), candidate.id


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", ALL_CASES)
def test_errors_stay_within_what_the_arithmetic_allows(name: str, dtype: DType, live: DeviceFacts) -> None:
    problem = posed(ALL_CASES[name], dtype)
    given = Operands.of(problem, "cuda", integers=False)
    expected = given.expected(problem)
    for candidate in some(name, problem, live):
        error = relative(given.computed(BACKEND.build(candidate, live)), expected)
        assert error <= LARGEST_ERROR[dtype], f"{candidate.id}: {error:.2e}"


@pytest.mark.parametrize("name", ["3x3", "ResNet 3x3"])
def test_errors_on_every_kind_of_data_are_no_worse_than_pytorchs(name: str, live: DeviceFacts) -> None:
    problem = posed(ALL_CASES[name], DType.FP16)
    check = ErrorCheck(problem, "cuda")

    def torchs(given: dict[Role, torch.Tensor]) -> torch.Tensor:
        w = torch.zeros(problem.w.shape, dtype=torch.float16, device="cuda", requires_grad=True)
        y = F.conv2d(given[Role.X], w, padding=1)
        return torch.autograd.grad(y, w, given[Role.DY])[0]

    beside = check.errors(torchs)
    for candidate in candidates(ALGORITHM, problem, live)[::3]:
        plan = BACKEND.build(candidate, live)
        errors = check.errors(lambda given, plan=plan: plan(given[Role.X], given[Role.DY]))
        assert error_objection(problem, errors, beside, Policy()) is None, candidate.id


@pytest.mark.parametrize("value", [float("inf"), float("nan")])
@pytest.mark.parametrize("place", ["x", "dy"])
def test_what_is_not_finite_lands_where_it_belongs(value: float, place: str, live: DeviceFacts) -> None:
    """In the last column, which pixels beside the output would read."""
    problem = posed(Case((2, 16, 5, 7), (16, 16, 3, 3), padding=SAME), DType.FP16)
    for candidate in every_tile(problem, 1)[::5]:
        given = Operands.of(problem, "cuda", integers=True)
        getattr(given, place)[0, 3, 1, -1] = value
        y = given.computed(BACKEND.build(candidate, live))
        assert torch.equal(y.isfinite(), given.expected(problem).isfinite()), candidate.id
