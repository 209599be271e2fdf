"""Transforms that put infinities where IEEE does, on a CPU."""

from __future__ import annotations

from math import inf, nan

import pytest
import torch
from torch import Tensor

import convwright as cw
from backends.reference_algorithm import CPU, candidate, compute
from convwright.backends.reference.backend import Reference
from convwright.backends.reference.direct import DirectPlan
from convwright.backends.reference.finite import FinitePlan, is_finite
from convwright.backends.reference.minimal_filtering.plan import WinogradPlan
from convwright.core.candidate import Candidate
from convwright.core.direction import Direction, Role
from convwright.core.epilogue import Activation
from convwright.core.problem import ConvProblem
from convwright.core.profiles import profile
from problem_space import operands, oracle

WINOGRAD = "reference/winograd"
ALGORITHMS = ["reference/fft", "reference/fft-tiled", WINOGRAD]
TEXT = "g2mb2ic4ih21oc4kh3ph1"


def plan_of(problem: ConvProblem, algorithm: str) -> FinitePlan:
    plan = Reference().build(first(problem, algorithm), CPU)
    assert isinstance(plan, FinitePlan)
    return plan


def first(problem: ConvProblem, algorithm: str) -> Candidate:
    """Of Winograd's two."""
    offers = Reference().candidates(problem, CPU, cw.Policy())
    return next(each for each in offers if isinstance(each, Candidate) and each.id.startswith(algorithm))


def beyond(result: Tensor, expected: Tensor) -> Tensor:
    """Where the two differ by more than rounding, or in what is not finite."""
    return ~torch.isclose(result.double(), expected.double(), rtol=1e-4, atol=1e-4, equal_nan=True)


@pytest.mark.parametrize("value", [inf, -inf, nan])
@pytest.mark.parametrize("where", [0, 1])
@pytest.mark.parametrize("direction", Direction)
@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_what_is_not_finite_lands_where_it_belongs(
    algorithm: str, direction: Direction, where: int, value: float
) -> None:
    problem = ConvProblem.parse(TEXT).asking(direction)
    given = operands(problem, 0)
    met = given[direction.operands[where]]
    met[1, 0, met.shape[2] // 2, 1] = value
    expected = oracle(problem, given)
    assert 0 < expected.isfinite().logical_not().sum() < expected.numel()
    assert not beyond(compute(first(problem, algorithm), given), expected).any()


@pytest.mark.parametrize("activation", [each for each in Activation if each is not Activation.NONE])
@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_no_activation_hides_what_a_transform_spreads(algorithm: str, activation: Activation) -> None:
    """Behind ReLU minus infinity is a zero."""
    problem = ConvProblem.parse(f"{TEXT} ep:{activation}")
    given = operands(problem, 0)
    given[Role.X][0, 1, 5, 5] = -inf
    assert not beyond(compute(first(problem, algorithm), given), oracle(problem, given)).any()


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_numbers_whose_transform_is_too_large_are_convolved_all_the_same(algorithm: str) -> None:
    problem = ConvProblem.parse("mb1ic2ih21oc2kh3")
    given = operands(problem, 0)
    given[Role.X].fill_(3e37)
    given[Role.W].fill_(0.1)
    result = compute(first(problem, algorithm), given)
    assert torch.allclose(result, torch.full_like(result, 2 * 9 * 3e36), rtol=1e-5)


@pytest.mark.parametrize("dtype", ["fp16", "bf16", "fp32", "fp64"])
@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_finite_numbers_are_computed_by_the_transform(
    algorithm: str, dtype: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Though the sum of so many in fp16 would be infinite."""

    def never(*_: object) -> Tensor:
        raise AssertionError("computed by definition")

    problem = ConvProblem.parse(f"mb4ic8ih40oc8kh3ph1 dt:{dtype}")
    given = operands(problem, 0)
    given[Role.X].abs_().add_(1)
    monkeypatch.setattr(DirectPlan, "__call__", never)
    compute(first(problem, algorithm), given)


def test_on_a_gpu_nobody_asks() -> None:
    problem = ConvProblem.parse(TEXT)
    plan = Reference().build(first(problem, WINOGRAD), profile("h200"))
    assert isinstance(plan, WinogradPlan)


def test_an_output_is_made_where_none_is_given() -> None:
    problem = ConvProblem.parse(TEXT)
    given, plan = operands(problem, 0), plan_of(problem, "reference/fft")
    y = plan(given[Role.X], plan.prepare(given[Role.W]))
    assert not beyond(y, oracle(problem, given)).any()


@pytest.mark.parametrize(
    ("values", "finite"), [([], True), ([65_504.0] * 3, True), ([1.0, nan], False), ([inf, -inf], False)]
)
def test_a_sum_tells_whether_all_are_finite(values: list[float], finite: bool) -> None:
    assert is_finite(torch.tensor(values, dtype=torch.float16)) is finite


@pytest.mark.slow
def test_infinities_are_no_reason_against_a_transform() -> None:
    problem = "mb2ic16ih32oc16kh11ph5"
    found = cw.find(problem, device="cpu", budget_us=8e6)
    said = {each.finding.candidate.id: each.reason for each in found.verdicts}
    assert not [reason for id_, reason in said.items() if "fft" in id_ and "infinities" in reason]
    assert candidate(ConvProblem.parse(problem), "reference/fft").id in said
