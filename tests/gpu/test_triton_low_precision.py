"""int8, fp8 and sums in fp16 by the implicit GEMM on the GPU at hand. int8 has to be right bit for bit."""

from __future__ import annotations

import pytest
import torch

from convwright.backends.triton.backend import TritonKernels
from convwright.core.candidate import Candidate
from convwright.core.direction import Role
from convwright.core.dtype import Arithmetic
from convwright.core.error_rule import absolute_objection
from convwright.core.policy import Policy
from convwright.core.problem import ConvProblem
from convwright.measuring.checking.error import ErrorCheck
from convwright.measuring.hardware.machine import device_facts
from convwright.settings import Mode
from convwright.tensors import empty, torch_dtype
from convwright.tuning.trials.trial import Bench, Trial
from problem_space import operands, oracle

pytest.importorskip("triton")
pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device, PyTorch sees none"),
]

SIZES = "mb4ic128ih15oc72kh3ph1"
EPILOGUES = ["none", "bias", "residual+bias+relu", "scale+bias", "scale+residual+bias+silu"]
INT8 = [
    *(f"{SIZES} dt:int8:int8:{stored} tag:nhwc ep:{ep}" for stored in ("fp32", "int8") for ep in EPILOGUES[:4]),
    f"{SIZES} dt:int8 tag:x=nhwc,w=nchw,y=nchw ep:scale",
    "mb2ic48ih13iw9oc20kh3kw2sh2ph1 dt:int8:int8:fp16 tag:nhwc",
    "g4mb2ic64ih13oc64kh3ph1 dt:int8 tag:nhwc",
    "mb1ic256ih7oc256kh3ph1 dt:int8:int8:int8 tag:nhwc ep:bias",
    "mb2ic32id5ih9oc32kd3kh3pd1ph1 dt:int8 tag:nhwc",
]


def offered(problem: ConvProblem, policy: Policy = Policy()) -> list[Candidate]:
    offers = TritonKernels().candidates(problem, device_facts("cuda"), policy)
    return [offer for offer in offers if isinstance(offer, Candidate)]


@pytest.mark.parametrize("text", INT8)
def test_int8_is_exact(text: str) -> None:
    problem = ConvProblem.parse(text)
    given = operands(problem, 1)
    exact, dtype = oracle(problem, given), torch_dtype(problem.y.dtype)
    expected = (exact.clamp(-128, 127).round() if dtype is torch.int8 else exact).to(dtype)
    here = {role: empty(problem.operands[role], "cuda").copy_(operand) for role, operand in given.items()}
    scale = {"scale": here[Role.SCALE]} if Role.SCALE in here else {}
    found = offered(problem)
    assert found
    for candidate in found:
        plan = TritonKernels().build(candidate, device_facts("cuda"))
        y = plan(here[Role.X], plan.prepare(here[Role.W]), here.get(Role.BIAS), here.get(Role.RESIDUAL), **scale)
        assert torch.equal(y.cpu(), expected), candidate.id


@pytest.mark.parametrize("dtype", ["fp8_e4m3", "fp8_e5m2"])
@pytest.mark.parametrize("stored", ["fp32", "fp16", "bf16"])
@pytest.mark.parametrize("epilogue", EPILOGUES)
def test_errors_of_fp8_are_explained(dtype: str, stored: str, epilogue: str) -> None:
    check(ConvProblem.parse(f"{SIZES} dt:{dtype}:{dtype}:{stored} tag:nhwc ep:{epilogue}"), Policy())


@pytest.mark.parametrize("epilogue", EPILOGUES[:3])
def test_errors_of_sums_in_fp16_are_explained(epilogue: str) -> None:
    policy = Policy(arithmetic=frozenset({Arithmetic.FP16_ACC16}))
    check(ConvProblem.parse(f"{SIZES} dt:fp16 tag:nhwc ep:{epilogue}"), policy)


def check(problem: ConvProblem, policy: Policy) -> None:
    allowed = policy.arithmetic or {Arithmetic.FP8_ACC32}
    found = [each for each in offered(problem, policy) if each.arithmetic in allowed]
    assert found
    errors = ErrorCheck(problem, "cuda")
    for candidate in found:
        trial = Trial(candidate, Bench(problem, device_facts("cuda"), Mode.FULL, seed=0))
        objection = absolute_objection(problem, candidate.arithmetic, errors.errors(trial.run), policy)
        assert objection is None, f"{candidate.id}: {objection}"
