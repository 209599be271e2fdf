"""What there is of cuDNN for GPUs that are not here: an H200, an A100 and a T4, in each dtype and direction."""

from __future__ import annotations

from functools import lru_cache

import pytest

from convwright.api.finding import find
from convwright.backends.cudnn.backend import Cudnn
from convwright.backends.cudnn.classic.listing import FAMILIES
from convwright.backends.cudnn.library import Missing, load
from convwright.core.candidate import Candidate, Refusal, Source
from convwright.core.direction import Direction
from convwright.core.dtype import IN_PYTORCH, Arithmetic, DType
from convwright.core.policy import Policy
from convwright.core.problem import ConvProblem
from convwright.core.profiles import profile
from convwright.store.store import Store
from convwright.tuning.find import Findings

pytestmark = pytest.mark.skipif(isinstance(load(), Missing), reason="cuDNN is not installed")

on_each = pytest.mark.parametrize("name", ["h200", "a100", "t4"])
in_each_direction = pytest.mark.parametrize("direction", Direction)
# The last is what cuDNN's engines make of fp32 where they convert it; no policy allows that unasked.
FP32 = {Arithmetic.FP32, Arithmetic.TF32, Arithmetic.FP16_ACC32}
ARITHMETIC = {
    "h200": {DType.FP32: FP32, DType.BF16: {Arithmetic.BF16_ACC32}},
    "a100": {DType.FP32: FP32, DType.BF16: {Arithmetic.BF16_ACC32}},
    "t4": {DType.FP32: FP32 - {Arithmetic.TF32}, DType.BF16: set()},
}
EVERYWHERE = {DType.FP64: {Arithmetic.FP64}, DType.FP16: {Arithmetic.FP16_ACC32}}


@lru_cache
def found(name: str, direction: Direction, dtype: DType) -> Findings:
    problem = f"mb32ic64ih28oc64kh3ph1 dt:{dtype} dir:{direction}"
    return find(problem, device=name, mode="heuristic", store=Store.open(None))


def listed(name: str, direction: Direction, dtype: DType) -> list[Candidate]:
    return [verdict.finding.candidate for verdict in found(name, direction, dtype).verdicts]


def is_engine(candidate: Candidate) -> bool:
    return candidate.algorithm.startswith("engine-")


@on_each
@in_each_direction
@pytest.mark.parametrize("dtype", IN_PYTORCH)
def test_engines_come_with_workspace_arithmetic_and_determinism(name: str, direction: Direction, dtype: DType) -> None:
    engines = [candidate for candidate in listed(name, direction, dtype) if is_engine(candidate)]
    assert {candidate.arithmetic for candidate in engines} == (ARITHMETIC[name] | EVERYWHERE)[dtype]
    for candidate in engines:
        assert isinstance(candidate.workspace_bytes, int)
        assert not candidate.workspace_is_bound
        assert isinstance(candidate.deterministic, bool)
        assert candidate.source is Source.PLANNER
    # cuDNN has engines that add in any order for both gradients, and none for the output.
    orders = {candidate.deterministic for candidate in engines}
    assert orders == (set() if not engines else {True} if direction is Direction.FORWARD else {True, False})


@on_each
@in_each_direction
def test_what_converts_fp32_is_not_permitted_unasked(name: str, direction: Direction) -> None:
    reasons = {
        verdict.reason
        for verdict in found(name, direction, DType.FP32).verdicts
        if is_engine(verdict.finding.candidate) and verdict.finding.candidate.arithmetic is Arithmetic.FP16_ACC32
    }
    assert len(reasons) == 1
    assert "fp16-acc32" in reasons.pop()


@in_each_direction
@pytest.mark.parametrize("dtype", IN_PYTORCH)
def test_nothing_computes_on_a_t4_in_what_it_has_not(direction: Direction, dtype: DType) -> None:
    without = {Arithmetic.TF32, Arithmetic.TF32X3}
    assert not {candidate.arithmetic for candidate in listed("t4", direction, dtype)} & without
    if dtype is DType.FP32:
        refused = {refusal.id: refusal.reason for refusal in found("t4", direction, dtype).refusals}
        tf32 = [f"cudnn/{each.name}[math=tf32]" for each in FAMILIES[direction].algorithms]
        assert {refused[name] for name in tf32} == {"Tesla T4 (sm_75) has no TF32"}


@on_each
@in_each_direction
@pytest.mark.parametrize("dtype", IN_PYTORCH)
def test_classic_algorithms_are_known_where_the_rules_were_verified(
    name: str, direction: Direction, dtype: DType
) -> None:
    named = {f"cudnn/{each.name}" for each in FAMILIES[direction].algorithms}
    candidates = {candidate.id: candidate for candidate in listed(name, direction, dtype) if candidate.id in named}
    refused = {each.id: each.reason for each in found(name, direction, dtype).refusals if each.id in named}
    assert candidates.keys() | refused.keys() == named
    if name == "h200":
        assert {candidate.source for candidate in candidates.values()} == {Source.RULE}
        assert not any(reason.startswith("unknown") for reason in refused.values())
    else:
        unknown = f"unknown on {profile(name).architecture}: the rules for the classic API are verified only on sm_90"
        assert set(refused.values()) == {unknown}


@pytest.mark.parametrize("name", ["h200", "a100", "v100"])
def test_what_the_classic_api_never_computes_is_said_of_every_device(name: str) -> None:
    (refusal,) = (
        offer
        for offer in Cudnn().candidates(ConvProblem.parse("ic16ih8oc16kh3 dt:int8"), profile(name), Policy())
        if offer.id == "cudnn/gemm"
    )
    assert refusal == Refusal("cudnn/gemm", "int8 is computed only by engines of cuDNN's graph API")
