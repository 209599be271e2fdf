"""Plans bound by role to a call without arguments: of every backend on a CPU, rewritten and not, and by Triton."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from backends.interpreted import passes_in_the_interpreter
from convwright.core.binding import bind
from convwright.core.candidate import Candidate
from convwright.core.direction import Role
from convwright.core.error_rule import absolute_objection
from convwright.core.finding import KindError
from convwright.core.kinds.text import parse
from convwright.core.plan import Plan
from convwright.core.policy import Policy
from convwright.core.problem import ConvProblem
from convwright.errors import BadInput
from convwright.measuring.checking.data import Kind, operands
from convwright.measuring.checking.error import errors_of
from convwright.measuring.checking.exact import DB_BEFORE
from convwright.measuring.checking.reference import Reference
from convwright.measuring.hardware.machine import device_facts
from convwright.tensors import empty, spoil_
from convwright.tuning import listing

CPU = device_facts("cpu")


def candidates(problem: ConvProblem) -> list[Candidate]:
    """One of each algorithm, and each rewrite around the first of each backend."""
    offers = listing.candidates(listing.direct(problem, CPU, Policy()))
    found = {each.id.partition("[")[0]: each for each in reversed(offers)}
    rewritten = listing.candidates(listing.rewritten(problem, CPU, Policy()))
    return [*found.values(), *{each.algorithm: each for each in rewritten}.values()]


def bound_result(plan: Plan, given: dict[Role, Tensor], *, into: bool) -> dict[Role, Tensor]:
    """What a bound plan computes, at its second call where nothing is added up."""
    problem: ConvProblem = plan.candidate.problem
    named = {role: tensor for role, tensor in given.items() if role is not Role.BEFORE}
    workspace = torch.full((plan.workspace_bytes,), 0xFF, dtype=torch.uint8) if plan.workspace_bytes else None
    held = DB_BEFORE if problem.epilogue.accumulate else torch.nan
    if Role.DB in problem.outputs:
        named[Role.DB] = empty(problem.operands[Role.DB], "cpu").fill_(held)
    if into:
        out = spoil_(empty(problem.output, "cpu"))
        named[problem.direction.output] = out.copy_(given[Role.BEFORE]) if Role.BEFORE in given else out
    call = bind(plan, named, workspace)
    if not problem.epilogue.accumulate:
        call()
    result = call()
    assert not into or result.data_ptr() == named[problem.direction.output].data_ptr()
    return named | {problem.direction.output: result}


def objection_to(plan: Plan, *, into: bool) -> str | None:
    problem: ConvProblem = plan.candidate.problem
    given = operands(problem, Kind.NORMAL, "cpu")
    right = Reference.of(problem, given)
    results = bound_result(plan, given, into=into)
    for reference in (right, right.bias):
        if reference is not None:
            error = KindError("normal", *errors_of(results[Role(reference.role)], reference))
            if (said := absolute_objection(problem, plan.candidate.arithmetic, [error], Policy())) is not None:
                return said
    return None


@pytest.mark.parametrize(
    "text",
    [
        "mb4ic8ih7oc8kh3sh2ph1 ep:residual+bias+relu",
        "g2mb2ic8iw9oc4kw3",
        "mb2ic3id4ih5iw6oc4kd1kh3kw1 tag:nhwc",
        "mb2ic4ih7oc8kh3ph1 ep:scale+bias+gelu",
        "mb2ic4ih7oc8kh3ph1 ep:bias+accumulate",
        *(f"mb2ic4ih7oc8kh3ph1 dir:{direction}" for direction in ("backward_data", "backward_weight")),
        "mb2ic4ih7oc8kh3ph1 dir:backward_weight ep:bias+relu",
        "mb2ic4ih7oc8kh3ph1 dir:backward_weight ep:bias+accumulate",
        "mb2ic4ih7oc8kh3ph1 dir:backward_data ep:scale+silu",
    ],
)
def test_every_plan_of_a_convolution_is_bound_by_role(text: str) -> None:
    problem = ConvProblem.parse(text)
    listed = candidates(problem)
    assert listed
    for candidate in listed:
        plan = listing.build(candidate, CPU)
        for into in (True, False) if not problem.epilogue.accumulate else (True,):
            assert objection_to(plan, into=into) is None, (candidate.id, into)


def test_many_kinds_of_plans_were_among_them() -> None:
    problem = ConvProblem.parse("mb4ic8ih7oc8kh3ph1")
    made = {type(listing.build(each, CPU)).__name__ for each in candidates(problem)}
    assert {"TorchPlan", "OneDnnPlan", "CopyingPlan", "SplitBatchPlan", "GemmPlan"} <= made


def test_a_weight_is_packed_once() -> None:
    problem = ConvProblem.parse("mb1ic4ih7oc8kh3")
    (candidate,) = [each for each in candidates(problem) if each.id == "torch/onednn"]
    plan: Any = listing.build(candidate, CPU)
    packed = 0
    prepare = plan.prepare

    def counted(weight: Tensor) -> Tensor:
        nonlocal packed
        packed += 1
        made: Tensor = prepare(weight)
        return made

    plan.prepare = counted
    call = bind(plan, {"x": torch.ones(1, 4, 7, 7), "w": torch.ones(8, 4, 3, 3)})
    for _ in range(3):
        assert call()[0, 0, 0, 0] == 36
    assert packed == 1


@pytest.mark.parametrize(
    ("text", "given", "words"),
    [
        ("ic4ih7oc8kh3", ["x"], "takes x, w, and y to write to, got x"),
        ("ic4ih7oc8kh3 ep:bias", ["x", "w"], "takes x, w, bias, and y to write to, got x, w"),
        ("ic4ih7oc8kh3", ["x", "w", "bias"], "got x, w, bias"),
        ("ic4ih7oc8kh3 dir:backward_weight ep:bias", ["x", "dy"], "takes x, dy, db, and dw to write to"),
        ('pointwise "a + b" ic8', ["a"], "takes a, b, and y to write to, got a"),
        ("copy ic8", [], "takes x, and y to write to, got none"),
    ],
)
def test_operands_must_be_those_of_the_problem(text: str, given: list[str], words: str) -> None:
    problem = parse(text)
    (candidate, *_) = listing.candidates(listing.direct(problem, CPU, Policy()))
    plan = listing.build(candidate, CPU)
    operands_given = {role: torch.zeros(1) for role in given}
    with pytest.raises(BadInput, match=words):
        bind(plan, operands_given)


def test_a_plan_of_another_kind_is_called_in_the_order_of_its_operands_or_by_name() -> None:
    problem = parse('pointwise "a - b" ic2')
    (candidate, *_) = listing.candidates(listing.direct(problem, CPU, Policy()))
    plan: Any = listing.build(candidate, CPU)
    a, b = torch.tensor([[5.0, 7.0]]), torch.tensor([[1.0, 2.0]])
    out = torch.empty(1, 2)
    assert plan(a, b).tolist() == plan(b=b, a=a).tolist() == plan(a, b=b, out=out).tolist() == [[4.0, 5.0]]
    assert plan(a, b, out=out).data_ptr() == out.data_ptr()
    with pytest.raises(BadInput, match="got 3 operands"):
        plan(a, b, a)


def test_triton_kernels_are_bound_in_the_interpreter() -> None:
    pytest.importorskip("triton")
    passes_in_the_interpreter("run_binding.py")
