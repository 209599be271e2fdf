"""Every configuration of the kernel for few channels computes right on the GPU at hand."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

import problem_space
from backends.triton_interpreted.cases import CASES, GROUPED, VOLUMES, Case, Operands, exact, listed, oracle
from convwright.backends.triton.backend import TritonKernels
from convwright.backends.triton.direct.offers import ALGORITHM, STRIPS, Strip, candidate_of
from convwright.core.candidate import Candidate
from convwright.core.device import DeviceFacts
from convwright.core.direction import Role
from convwright.core.dtype import DType
from convwright.core.policy import Policy
from convwright.core.problem import ConvProblem
from convwright.core.tensor_spec import Layout
from convwright.tensors import empty, torch_dtype
from convwright.tuning.asked import named
from convwright.tuning.find import resolved
from gpu.own_kernels import by_turns
from gpu.right import check_beside, relative

pytest.importorskip("triton")
pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device, PyTorch sees none"),
]

BACKEND = TritonKernels()
SAME = ((1, 1), (1, 1))
LAYERS = {
    "dilated": Case((1, 50, 256, 256), (1, 50, 3, 3), (1, 1), ((5, 5), (5, 5)), (5, 5), "bias+relu"),
    "sixteen outputs": Case((2, 64, 56, 56), (16, 64, 3, 3), padding=SAME, epilogue="residual+bias+relu"),
    "strided": Case((2, 16, 113, 57), (3, 16, 5, 5), (2, 2), ((2, 2), (2, 2)), epilogue="bias"),
    "depthwise": Case((4, 32, 112, 112), (32, 1, 3, 3), padding=SAME, epilogue="bias+relu", groups=32),
    "depthwise 7x7": Case((4, 192, 28, 28), (192, 1, 7, 7), padding=((3, 3), (3, 3)), groups=192),
    "depthwise 31x31": Case((2, 64, 28, 28), (64, 1, 31, 31), padding=((15, 15), (15, 15)), groups=64),
    "volume": Case((1, 24, 8, 28, 40), (4, 24, 3, 3, 3), (1, 1, 1), (SAME[0],) * 3, (1, 1, 1), "residual+bias+relu"),
    "one of one": Case((1, 1, 512, 512), (1, 1, 3, 3), padding=SAME),
    "fifty of one": Case((1, 1, 256, 256), (50, 1, 3, 3), (1, 1), ((5, 5), (5, 5)), (5, 5), "bias+relu"),
}
DTYPES = [DType.FP32, DType.FP16, DType.BF16]
LARGEST_ERROR = {DType.FP32: 2e-6, DType.FP16: 6e-4, DType.BF16: 5e-3}


def in_planes(case: Case, dtype: DType) -> ConvProblem:
    return case.problem(dtype, Layout.NCHW, Layout.NCHW)


def offered(problem: ConvProblem, device: DeviceFacts) -> list[Candidate]:
    return [each for each in listed(ALGORITHM, problem, device) if isinstance(each, Candidate)]


@pytest.mark.parametrize(("name", "dtype"), by_turns([*CASES, *VOLUMES], DTYPES))
def test_small_integers_come_out_exactly(name: str, dtype: DType, live: DeviceFacts) -> None:
    case = (CASES | VOLUMES)[name]
    problem = in_planes(replace(case, w=(min(case.w[0], 5), *case.w[1:])), dtype)
    given = Operands.of(problem, "cuda", integers=True)
    expected = exact(oracle(problem, given), problem)
    for candidate in offered(problem, live)[::2]:
        assert torch.equal(given.computed(BACKEND.build(candidate, live)), expected), candidate.id


@pytest.mark.parametrize(("name", "layout", "dtype"), by_turns([*GROUPED], [Layout.NCHW, Layout.NHWC], DTYPES))
def test_groups_are_kept_apart(name: str, dtype: DType, layout: Layout, live: DeviceFacts) -> None:
    problem = GROUPED[name].problem(dtype, layout, layout)
    given = Operands.of(problem, "cuda", integers=True)
    expected = oracle(problem, given)
    for candidate in offered(problem, live):
        y = given.computed(BACKEND.build(candidate, live))
        if "silu" in str(problem.epilogue):
            assert torch.allclose(y.double(), expected, rtol=1e-2, atol=1e-6), candidate.id
        else:
            assert torch.equal(y, exact(expected, problem)), candidate.id


@pytest.mark.parametrize("strip", STRIPS)
def test_every_strip_handles_its_tails(strip: Strip, live: DeviceFacts) -> None:
    groups = 5 if strip.across else 1
    shapes = (2, groups * 3, 45, 137), (groups * 3, 3, 3, 2)
    if strip.split > 1:
        shapes = (2, 11, 45, 137), (3, 11, 3, 2)
    case = Case(*shapes, (2, 1), ((4, 3), (2, 1)), (3, 2), "residual+bias+relu", slack=1, groups=groups)
    for layout in (Layout.NCHW, Layout.NHWC) if strip.across else (Layout.NCHW,):
        problem = case.problem(DType.FP32, layout, layout)
        given = Operands.of(problem, "cuda", integers=True)
        expected = exact(oracle(problem, given), problem)
        # Those of a group in parts, of which the last may be short; all at once by turns.
        for outputs in (2, 3) if strip.bq == 64 else (2,):
            packed = 1 if layout is Layout.NHWC and strip.bq > 64 else None
            candidate = candidate_of(problem, replace(strip, outputs=outputs, packed=packed))
            assert torch.equal(given.computed(BACKEND.build(candidate, live)), expected), candidate.id


@pytest.mark.parametrize(("name", "dtype"), by_turns([*LAYERS], DTYPES))
def test_layers_are_right_and_the_same_from_run_to_run(name: str, dtype: DType, live: DeviceFacts) -> None:
    problem = in_planes(LAYERS[name], dtype)
    given = Operands.of(problem, "cuda", integers=False)
    expected = oracle(problem, given)
    for candidate in offered(problem, live):
        y = given.computed(BACKEND.build(candidate, live)).clone()
        assert relative(y, expected) < LARGEST_ERROR[dtype], candidate.id
        assert torch.equal(given.computed(BACKEND.build(candidate, live)), y), candidate.id


STRIDED = [
    "g32mb4ic32ih112oc32kh3sh2ph1",
    "g192mb4ic192ih56oc192kh7sh2ph3",
    "g2mb2ic8ih31oc10kh5kw4sh2sw1ph2pw3",
    "mb2ic12ih64oc8kh7sh2ph3",
    "g2mb2ic4ih61oc6kh3kw5sh3sw2ph1pw4dh1dw2",
    "g32mb2ic32id8ih28oc32kd3kh3sd2sh2pd1ph1",
    "mb2ic50ih64oc1kh3ph5dh4",
    "g64mb2ic64ih28oc64kh31ph15",
]


@pytest.mark.parametrize(("text", "tag", "dtype"), by_turns(STRIDED, ["nchw", "nhwc"], DTYPES))
def test_gradients_of_inputs_come_out_exactly(text: str, tag: str, dtype: DType, live: DeviceFacts) -> None:
    problem = ConvProblem.parse(f"{text} dir:backward_data dt:{dtype} tag:{tag}")
    found = offered(problem, live)
    assert found or (tag == "nhwc" and problem.groups < 3)
    given = problem_space.operands(problem, 1)
    expected = problem_space.oracle(problem, given).to(torch_dtype(dtype)).cuda()
    dy, weight = given[Role.DY].cuda(), given[Role.W].cuda()
    for candidate in found:
        plan = BACKEND.build(candidate, live)
        out = empty(problem.output, torch.device("cuda")).fill_(float("nan"))
        assert torch.equal(plan(dy, plan.prepare(weight), out=out), expected), candidate.id


@pytest.mark.parametrize("text", ["mb2ic3oc64ih56kh3ph1", "mb1ic1oc32ih81iw175kh5kw20sh2sw2"])
def test_some_strip_sums_up_a_long_sum_as_exactly_as_pytorch_does(text: str, live: DeviceFacts) -> None:
    problem = ConvProblem.parse(f"{text} dir:backward_data")
    split = next(each for each in offered(problem, live) if Strip.of(each).split > 3)
    with torch.backends.cudnn.flags(enabled=True, allow_tf32=False):
        check_beside(named("torch/default", problem, live, resolved(Policy(), problem, live)), [split])


@pytest.mark.parametrize("value", [float("inf"), float("-inf"), float("nan")])
@pytest.mark.parametrize("place", ["x", "w"])
def test_what_is_not_finite_lands_where_it_belongs(value: float, place: str, live: DeviceFacts) -> None:
    problem = in_planes(Case((1, 4, 16, 140), (2, 4, 3, 3), padding=SAME, epilogue="relu"), DType.FP32)
    given = Operands.of(problem, "cuda", integers=False)
    getattr(given, place)[0, 3, 1, 1] = value
    expected = oracle(problem, given).float()
    for candidate in offered(problem, live):
        y = given.computed(BACKEND.build(candidate, live))
        assert torch.allclose(y, expected, rtol=1e-5, atol=1e-5, equal_nan=True), candidate.id
