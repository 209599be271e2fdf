"""Every configuration of the kernel whose threads compute patches computes right on the GPU at hand."""

from __future__ import annotations

import re

import pytest
import torch

import problem_space
from backends.triton_interpreted.cases import listed
from convwright.backends.triton.backend import TritonKernels
from convwright.backends.triton.wide_direct.offers import ALGORITHM
from convwright.core.candidate import Candidate
from convwright.core.device import DeviceFacts
from convwright.core.direction import Role
from convwright.core.dtype import DType
from convwright.core.problem import ConvProblem
from convwright.tensors import empty, torch_dtype
from gpu.own_kernels import by_turns
from gpu.right import relative

pytest.importorskip("triton")
pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device, PyTorch sees none"),
]

BACKEND = TritonKernels()
DTYPES = [DType.FP32, DType.FP16, DType.BF16]
LARGEST_ERROR = {DType.FP32: 2e-6, DType.FP16: 6e-4, DType.BF16: 5e-3}
PROBLEMS = [
    "g32mb4ic32ih112oc32kh3ph1 ep:bias+relu",
    "g24mb3ic24ih45iw38oc24kh3ph1 ep:residual+bias+relu",
    "g192mb2ic192ih28oc192kh7ph3",
    "g64mb2ic64ih28oc64kh31ph15",
    "g48mb2ic48ih57iw30oc48kh5sh2ph2",
    "g16mb2ic16iw1024oc16kw4pw3",
    "g16mb2ic16ih40iw44oc16kh3ph4dh3",
    "g24mb1ic24id6ih20iw28oc24kd3kh3pd1ph1",
]
FEW = [
    "mb1ic50ih128oc1kh3ph5dh4 ep:bias+relu",
    "mb2ic9ih61iw64oc5kh3kw2ph1",
    "g2mb2ic12ih30iw36oc6kh5ph2 ep:residual+bias",
    "mb2ic3ih224oc3kh3ph1",
    "mb3ic3ih97iw104oc32kh3sh2ph1 ep:bias+relu",
    "mb2ic3ih61iw72oc60kh3ph1 ep:residual+bias+relu",
]


def offered(problem: ConvProblem, device: DeviceFacts) -> list[Candidate]:
    return [each for each in listed(ALGORITHM, problem, device) if isinstance(each, Candidate)]


def computed(candidate: Candidate, given: dict[Role, torch.Tensor], device: DeviceFacts) -> torch.Tensor:
    plan, problem = BACKEND.build(candidate, device), candidate.problem
    first, second = (given[role].cuda() for role in problem.direction.operands)
    rest = [given[role].cuda() if role in given else None for role in (Role.BIAS, Role.RESIDUAL)]
    out = empty(problem.output, torch.device("cuda")).fill_(float("nan"))
    return plan(first, plan.prepare(second), *rest, out=out)


def texts() -> list[str]:
    """Depthwise ones in both layouts and few channels in planes, forward and as gradients where these are served."""
    forward = [f"{text} tag:{tag}" for text in PROBLEMS for tag in ("nchw", "nhwc")] + FEW
    plain = [" ".join(word for word in text.split() if not word.startswith("ep:")) for text in forward]
    # Windows of an even size write rows of an odd width, from which gradients are not read.
    served = [text for text in plain if not {"sh2", "kw2", "kw4"} & set(re.findall(r"(?:sh|kw)\d+", text))]
    return forward + [f"{text} dir:backward_data" for text in served]


@pytest.mark.parametrize(("text", "dtype"), by_turns(texts(), DTYPES))
def test_small_integers_come_out_exactly(text: str, dtype: DType, live: DeviceFacts) -> None:
    problem = ConvProblem.parse(f"{text} dt:{dtype}")
    found = offered(problem, live)
    assert found
    given = problem_space.operands(problem, 1)
    expected = problem_space.oracle(problem, given).to(torch_dtype(dtype)).cuda()
    for candidate in found:
        assert torch.equal(computed(candidate, given, live), expected), candidate.id


@pytest.mark.parametrize(("text", "dtype"), by_turns([PROBLEMS[0], PROBLEMS[2], *FEW[:3]], DTYPES))
def test_layers_are_right_and_the_same_from_run_to_run(text: str, dtype: DType, live: DeviceFacts) -> None:
    problem = ConvProblem.parse(f"{text} dt:{dtype}")
    given = problem_space.operands(problem, 2, integers=False)
    expected = problem_space.oracle(problem, given)
    for candidate in offered(problem, live)[::2]:
        y = computed(candidate, given, live)
        assert relative(y, expected.cuda()) < LARGEST_ERROR[dtype], candidate.id
        assert torch.equal(computed(candidate, given, live), y), candidate.id


@pytest.mark.parametrize("value", [float("inf"), float("-inf"), float("nan")])
@pytest.mark.parametrize("role", [Role.X, Role.W])
def test_what_is_not_finite_lands_where_it_belongs(value: float, role: Role, live: DeviceFacts) -> None:
    problem = ConvProblem.parse("ic4ih16iw140oc2kh3ph1 ep:relu")
    given = problem_space.operands(problem, 1, integers=False)
    given[role][0, 3, 1, 1] = value
    expected = problem_space.oracle(problem, given).float().cuda()
    for candidate in offered(problem, live):
        y = computed(candidate, given, live)
        assert torch.allclose(y, expected, rtol=1e-5, atol=1e-5, equal_nan=True), candidate.id
