"""Every configuration of the kernels that sum up taps first computes right on the GPU at hand."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

import problem_space
from convwright.backends.triton.backend import TritonKernels
from convwright.backends.triton.taps_first.offers import ALGORITHM
from convwright.core.candidate import Candidate
from convwright.core.device import DeviceFacts
from convwright.core.direction import Role
from convwright.core.dtype import DType
from convwright.core.problem import ConvProblem
from convwright.tensors import empty, torch_dtype
from gpu.own_kernels import by_turns, candidates
from gpu.right import relative

pytest.importorskip("triton")
pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device, PyTorch sees none"),
]

BACKEND = TritonKernels()
DTYPES = [DType.FP32, DType.FP16, DType.BF16]
LARGEST_ERROR = {DType.FP32: 2e-6, DType.FP16: 6e-4, DType.BF16: 5e-3}
# In words: dilated and strided windows, groups, volumes, rows that are wider than a block, tails of all kinds, and
# gradients of inputs behind an activation.
PROBLEMS = [
    "ic50ih512oc1kh3ph5dh4 ep:bias+relu",
    "mb4ic256ih64oc1kh3ph1",
    "mb2ic33ih61iw45oc3kh3ph1 ep:residual+bias+relu",
    "g2mb2ic40ih30iw36oc4kh3kw5sh2sw2ph1pw2 ep:bias",
    "mb2ic64id9ih20iw28oc1kd3kh3pd1ph1 ep:bias+relu",
    "mb3ic17iw5000oc1kw25pw40dw3",
    "mb2ic9ih7oc2kh1 ep:residual",
    "ic3mb2oc64ih56kh3ph1 dir:backward_data",
    "g2ic2mb2oc70ih31iw40kh5kw3ph2pw1 dir:backward_data ep:relu",
    "ic1mb2oc20iw3000kw9pw8dw1 dir:backward_data",
]


def computed(candidate: Candidate, given: dict[Role, torch.Tensor], device: DeviceFacts) -> torch.Tensor:
    """With an output and a workspace full of NaN."""
    plan, problem = BACKEND.build(candidate, device), candidate.problem
    first, second = (given[role].cuda() for role in problem.direction.operands)
    rest = [given[role].cuda() if role in given else None for role in (Role.BIAS, Role.RESIDUAL)]
    out = empty(problem.output, torch.device("cuda")).fill_(float("nan"))
    workspace = torch.full((plan.workspace_bytes,), 0xFF, dtype=torch.uint8, device="cuda")
    if Role.Z in given:
        return plan(first, plan.prepare(second), out=out, workspace=workspace, z=given[Role.Z].cuda())
    return plan(first, plan.prepare(second), *rest, out=out, workspace=workspace)


@pytest.mark.parametrize(("text", "dtype"), by_turns(PROBLEMS, DTYPES))
def test_small_integers_come_out_exactly(text: str, dtype: DType, live: DeviceFacts) -> None:
    problem = ConvProblem.parse(f"{text} dt:{dtype}")
    given = problem_space.operands(problem, 1)
    expected = problem_space.oracle(problem, given).to(torch_dtype(dtype)).cuda()
    for candidate in candidates(ALGORITHM, problem, live):
        assert torch.equal(computed(candidate, given, live), expected), candidate.id


@pytest.mark.parametrize(("text", "dtype"), by_turns(PROBLEMS, DTYPES[1:] + DTYPES[:1]))
def test_layers_are_right_and_the_same_from_run_to_run(text: str, dtype: DType, live: DeviceFacts) -> None:
    problem = ConvProblem.parse(f"{text} dt:{dtype}")
    given = problem_space.operands(problem, 2, integers=False)
    expected = problem_space.oracle(problem, given)
    for candidate in candidates(ALGORITHM, problem, live)[::2]:
        y = computed(candidate, given, live)
        assert relative(y, expected.cuda()) < LARGEST_ERROR[dtype], candidate.id
        assert torch.equal(computed(candidate, given, live), y), candidate.id


@pytest.mark.parametrize("value", [float("inf"), float("-inf"), float("nan")])
@pytest.mark.parametrize("role", [Role.X, Role.W])
def test_what_is_not_finite_lands_where_it_belongs(value: float, role: Role, live: DeviceFacts) -> None:
    problem = ConvProblem.parse("ic11ih16iw140oc2kh3ph1 ep:relu")
    given = problem_space.operands(problem, 1, integers=False)
    given[role][0, 3, 1, 1] = value
    expected = problem_space.oracle(problem, given).float().cuda()
    for candidate in candidates(ALGORITHM, problem, live):
        y = computed(candidate, given, live)
        assert torch.allclose(y, expected, rtol=1e-5, atol=1e-5, equal_nan=True), candidate.id


def test_more_than_32_bits_of_offsets(live: DeviceFacts) -> None:
    """Of images that lie far behind one another."""
    problem = ConvProblem.parse("mb3ic8ih16iw64oc1kh3ph1 dt:fp16")
    whole = torch.randn(3, 2**31 // 3 + 1, device="cuda", dtype=torch.float16)
    far = replace(problem.x, strides=(whole.stride(0), *problem.x.strides[1:]), alignment=2)
    apart = replace(problem, x=far)
    x = whole.as_strided(problem.x.shape, far.strides)
    w = torch.randn(problem.w.shape, device="cuda", dtype=torch.float16)
    expected = torch.nn.functional.conv2d(x.double(), w.double(), padding=1)
    for candidate in candidates(ALGORITHM, apart, live)[:2]:
        plan = BACKEND.build(candidate, live)
        assert relative(plan(x, plan.prepare(w)), expected) < LARGEST_ERROR[DType.FP16], candidate.id
