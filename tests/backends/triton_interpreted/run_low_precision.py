"""int8, and sums in fp16, by the implicit GEMM in Triton's interpreter, in a process of its own."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import Tensor

pytest.importorskip("triton")

from convwright.backends.triton.backend import TritonKernels
from convwright.backends.triton.gemm.algorithms import algorithm_of
from convwright.backends.triton.gemm.tiles import Tile
from convwright.backends.triton.implicit_gemm.offers import candidate_of
from convwright.core.candidate import Candidate
from convwright.core.direction import Role
from convwright.core.dtype import Arithmetic, DType
from convwright.core.error_rule import absolute_objection
from convwright.core.policy import Policy
from convwright.core.problem import ConvProblem
from convwright.errors import BadInput
from convwright.measuring.checking.error import ErrorCheck
from convwright.measuring.hardware.machine import device_facts
from convwright.tensors import torch_dtype
from problem_space import operands, oracle, tensor

BACKEND, CPU = TritonKernels(), device_facts("cpu")
SIZES = "mb2ic20ih5iw6oc18kh3ph1"


def offered(problem: ConvProblem, policy: Policy = Policy()) -> list[Candidate]:
    offers = BACKEND.candidates(problem, CPU, policy)
    found = [each for each in offers if isinstance(each, Candidate) and each.algorithm.startswith("implicit-gemm")]
    return sorted(found, key=lambda each: -Tile.of(each).bm * Tile.of(each).bn)  # those of few programs first


def parted(candidate: Candidate, parts: int) -> Candidate:
    tile = replace(Tile.of(candidate), parts=parts)
    return candidate_of(candidate.problem, algorithm_of(candidate, "implicit-gemm"), tile)


def computed(candidate: Candidate, given: dict[Role, Tensor]) -> Tensor:
    plan, out = BACKEND.build(candidate, CPU), tensor(candidate.problem.y)
    workspace = torch.full((plan.workspace_bytes,), 0xFF, dtype=torch.uint8)
    scale = {"scale": given[Role.SCALE]} if Role.SCALE in given else {}
    added = given.get(Role.BIAS), given.get(Role.RESIDUAL)
    assert plan(given[Role.X], plan.prepare(given[Role.W]), *added, out, workspace, **scale) is out
    return out


def stored(exact: Tensor, problem: ConvProblem) -> Tensor:
    dtype = torch_dtype(problem.y.dtype)
    return (exact.clamp(-128, 127).round() if dtype is torch.int8 else exact).to(dtype)


INT8 = [
    f"{SIZES} dt:int8 tag:nhwc",
    f"{SIZES} dt:int8:int8:int8 tag:nhwc ep:residual+bias+relu",
    f"{SIZES} dt:int8:int8:fp16 tag:nhwc ep:scale+bias",
    f"{SIZES} dt:int8 tag:x=nhwc,w=nchw,y=nchw ep:scale+residual+bias+relu",
    "g2mb1ic36ih5iw7oc20kh2kw3sh2ph1pw2 dt:int8:int8:int8 tag:nhwc ep:scale",
    "mb1ic3ih9oc9kh5ph2dh1 dt:int8 tag:nhwc ep:bias",
    "mb2ic17id3ih4oc9kd2kh3ph1 dt:int8:int8:int8 tag:nhwc ep:bias",
    "mb2ic40iw9oc8kw3pw1 dt:int8 tag:nhwc",
]


@pytest.mark.parametrize(("number", "text"), [*enumerate(INT8)])
def test_int8_is_exact(number: int, text: str) -> None:
    problem = replace(ConvProblem.parse(text), flip=number % 2 == 1)
    given = operands(problem, number)
    given[Role.X].random_(-128, 128)
    candidate = offered(problem)[0]
    assert candidate.arithmetic is Arithmetic.INT8
    expected = stored(oracle(problem, given), problem)
    assert torch.equal(computed(candidate, given), expected), candidate.id
    assert torch.equal(computed(parted(candidate, 2), given), expected), candidate.id


def test_what_int8_cannot_hold_becomes_the_nearest_that_it_can() -> None:
    problem = ConvProblem.parse("ic16ih1oc8kh1 dt:int8:int8:int8 tag:nhwc ep:bias")
    x, w = torch.zeros(1, 16, 1, 1, dtype=torch.int8), torch.zeros(8, 16, 1, 1, dtype=torch.int8)
    x[0, 0], w[:, 0, 0, 0] = 100, torch.tensor([2, -2, 1, 1, 1, 0, 0, 0], dtype=torch.int8)
    bias = torch.tensor([0.0, 0.0, 0.25, -0.75, 27.4, 0.5, 1.5, -2.5])
    given = {Role.X: x, Role.W: w, Role.BIAS: bias}
    assert computed(offered(problem)[0], given).flatten().tolist() == [127, -128, 100, 99, 127, 0, 2, -2]


def test_a_sum_beyond_fp32_is_rounded_once() -> None:
    problem = ConvProblem.parse("ic2048ih1oc1kh1 dt:int8 tag:nhwc")
    x, w = (torch.full((1, 2048, 1, 1), 127, dtype=torch.int8) for _ in range(2))
    x[0, 0], w[0, 0] = 1, 2
    exact = 2047 * 127 * 127 + 2
    candidate = offered(problem)[0]
    for each in (candidate, parted(candidate, 3)):
        got = computed(each, {Role.X: x, Role.W: w})
        assert got.item() == torch.tensor(exact, dtype=torch.float32).item() != exact, each.id


def test_a_scale_has_to_be_given() -> None:
    problem = ConvProblem.parse(f"{SIZES} dt:int8 tag:nhwc ep:scale")
    plan = BACKEND.build(offered(problem)[0], CPU)
    given = operands(problem, 0)
    with pytest.raises(BadInput, match="needs `scale` besides its operands, got nothing"):
        plan(given[Role.X], plan.prepare(given[Role.W]))


def test_sums_in_fp16_are_offered_where_they_are_named_and_as_good_as_they_say() -> None:
    problem = ConvProblem.parse("mb1ic48ih5iw6oc18kh3ph1 dt:fp16 tag:nhwc ep:bias+relu")
    policy = Policy(arithmetic=frozenset({Arithmetic.FP16_ACC16}))
    assert all(each.arithmetic is Arithmetic.FP16_ACC32 for each in offered(problem))
    (candidate, *_) = (each for each in offered(problem, policy) if each.arithmetic is Arithmetic.FP16_ACC16)
    given = operands(problem, 1)
    assert torch.equal(computed(candidate, given), stored(oracle(problem, given), problem))
    plan, check = BACKEND.build(candidate, CPU), ErrorCheck(problem, "cpu")
    errors = check.errors(
        lambda by_role: plan(by_role["x"], plan.prepare(by_role["w"]), by_role.get("bias")),
    )
    assert absolute_objection(problem, candidate.arithmetic, errors, policy) is None
    assert problem.dtype is DType.FP16
