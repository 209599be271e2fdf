"""int8 and fp8 by reference/direct: int8 is exact whatever its output is stored in, and so it is inside of rewrites."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from convwright.backends.reference.backend import Reference
from convwright.core.candidate import Candidate, Refusal
from convwright.core.dtype import DType
from convwright.core.epilogue import Activation, Epilogue
from convwright.core.error_rule import absolute_objection
from convwright.core.policy import Policy
from convwright.core.problem import ConvProblem
from convwright.core.tensor_spec import Layout
from convwright.measuring.checking.data import Kind, kinds_of
from convwright.measuring.checking.error import ErrorCheck
from convwright.measuring.hardware.machine import device_facts
from convwright.settings import Mode
from convwright.tensors import torch_dtype
from convwright.tuning import listing
from convwright.tuning.find import resolved
from convwright.tuning.trials.trial import Bench, Trial
from problem_space import operands, oracle, problems, tensor

NARROW = [dtype for dtype in DType if dtype.narrow]
CPU = device_facts("cpu")


def direct(problem: ConvProblem) -> Candidate:
    (candidate,) = (o for o in Reference().candidates(problem, CPU, Policy()) if isinstance(o, Candidate))
    assert candidate.id == "reference/direct"
    return candidate


@given(problem=problems(dtype=DType.INT8), seed=st.integers(0, 99))
def test_int8_is_exact(problem: ConvProblem, seed: int) -> None:
    made = operands(problem, seed)
    plan = Reference().build(direct(problem), CPU)
    out = tensor(problem.output)
    x, w, *added = made.values()
    by_role = {str(role): value for role, value in made.items()}
    got = plan(x, plan.prepare(w), by_role.get("bias"), by_role.get("residual"), out)
    exact, stored = oracle(problem, made), torch_dtype(problem.y.dtype)
    assert got is out
    assert torch.equal(got, (exact.clamp(-128, 127) if stored is torch.int8 else exact).to(stored))
    assert len(added) == problem.epilogue.bias + problem.epilogue.residual


def test_what_int8_cannot_hold_becomes_the_nearest_that_it_can() -> None:
    problem = ConvProblem.parse("ic1ih1oc5kh1 dt:int8:int8:int8 ep:bias")
    x, w = torch.full((1, 1, 1, 1), 100, dtype=torch.int8), torch.tensor([2, -2, 1, 1, 1], dtype=torch.int8)
    bias = torch.tensor([0.0, 0.0, 0.25, -0.75, 27.4])
    plan = Reference().build(direct(problem), CPU)
    assert plan(x, plan.prepare(w.view(5, 1, 1, 1)), bias).flatten().tolist() == [127, -128, 100, 99, 127]


def test_a_sum_beyond_fp32_is_rounded_once() -> None:
    problem = ConvProblem.parse("ic2048ih1oc1kh1 dt:int8")
    x, w = torch.full((1, 2048, 1, 1), 127, dtype=torch.int8), torch.full((1, 2048, 1, 1), 127, dtype=torch.int8)
    x[0, 0], w[0, 0] = 1, 2
    exact = 2047 * 127 * 127 + 2
    plan = Reference().build(direct(problem), CPU)
    assert plan(x, plan.prepare(w)).item() == torch.tensor(exact, dtype=torch.float32).item() != exact


def test_others_refuse_with_the_reason() -> None:
    for dtype in NARROW:
        problem = ConvProblem.parse(f"mb2ic8ih9oc8kh3 dt:{dtype}")
        refusals = [o for o in listing.direct(problem, CPU, Policy()) if isinstance(o, Refusal)]
        assert {"reference/gemm", "reference/winograd", "reference/fft", "reference/fft-tiled"} <= {
            refusal.id for refusal in refusals if "reference/direct" in refusal.reason
        }
        (own,) = (refusal for refusal in refusals if refusal.id == "torch/default")
        assert own.reason == f"PyTorch's own call has no fp32 sums of {dtype}"


AROUND = [
    "mb2ic12ih9oc8kh3ph1",
    "g4mb2ic8ih9oc8kh3ph1 tag:nhwc",
    "g8mb2ic8ih9oc8kh3ph1dh1 tag:nhwc",
    "mb2ic5iw20oc3kw3pw1 flip:1",
    "mb2ic3ih12oc4kh2sh2",
]


STORED = [f"{d}:{d}:{o}" for d in NARROW for o in d.outputs]
EPILOGUES = ["none", "residual+bias+relu", "bias+silu"]


# Each problem in all dtypes, with one epilogue each by turns, so that each dtype has all epilogues.
@pytest.mark.parametrize(
    ("text", "stored", "epilogue"),
    [(a, s, EPILOGUES[(i + j) % 3]) for i, a in enumerate(AROUND) for j, s in enumerate(STORED)],
)
def test_rewrites_around_it_stay_within_the_bound(text: str, stored: str, epilogue: str) -> None:
    problem = ConvProblem.parse(f"{text} dt:{stored} ep:{epilogue}")
    policy = resolved(Policy(), problem, CPU)
    candidates = [direct(problem), *listing.candidates(listing.rewritten(problem, CPU, policy))]
    assert len(candidates) > 2
    finite = [kind for kind in kinds_of(problem) if kind not in (Kind.INFINITY, Kind.NAN)]
    bench, check = Bench(problem, CPU, Mode.FULL, seed=1), ErrorCheck(problem, "cpu", kinds=finite)
    for candidate in candidates:
        errors = check.errors(Trial(candidate, bench).run)
        assert absolute_objection(problem, candidate.arithmetic, errors, policy) is None, candidate.id


def test_an_epilogue_stands_apart_only_where_sums_are_not_rounded_before() -> None:
    problem = ConvProblem.parse("mb2ic8ih9oc8kh3 dt:int8 ep:bias")
    for stored in DType.INT8.outputs:
        asked = replace(problem, y=replace(problem.y, dtype=stored), epilogue=Epilogue(True, True, Activation.RELU))
        offers = listing.rewritten(asked.in_layout(Layout.NCHW), CPU, resolved(Policy(), asked, CPU))
        apart = any(c.algorithm == "unfuse" for c in listing.candidates(offers))
        assert apart == (stored is DType.FP32)
