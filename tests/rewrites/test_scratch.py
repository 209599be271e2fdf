"""Scratch memory of rewrites: carved once out of a workspace that many calls share, and held by nobody else."""

from __future__ import annotations

from collections.abc import Callable
from weakref import ref

import pytest
import torch
from torch import Tensor
from torch.multiprocessing.reductions import StorageWeakRef

from convwright.core.plan import Plan
from convwright.core.policy import Policy
from convwright.core.problem import ConvProblem
from convwright.rewrites import scratch
from convwright.tuning import listing
from problem_space import operands
from tuning.made import CPU

PROBLEM = ConvProblem.parse("mb4ic3ih9oc5kh3ph1")
ONE_DEEP, TWO_DEEP = "relayout(nhwc, reference/gemm)", "split-batch(2, relayout(nhwc, reference/gemm))"


def planned(id_: str) -> tuple[Plan, Callable[[Tensor], Tensor]]:
    """A plan, and its calls on the same operands in a workspace."""
    candidate = listing.with_id(id_, PROBLEM, CPU, Policy())
    assert candidate is not None
    plan = listing.build(candidate, CPU)
    x, w = list(operands(PROBLEM, seed=1).values())[:2]
    packed = plan.prepare(w)
    return plan, lambda workspace: plan(x, packed, None, None, None, workspace)


def memory(plan: Plan) -> Tensor:
    return torch.empty(plan.workspace_bytes, dtype=torch.uint8)


@pytest.fixture
def carved(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The offset of each tensor that is carved out of a workspace."""
    seen, carve = list[int](), scratch.carve
    monkeypatch.setattr(scratch, "carve", lambda *given: seen.append(given[1]) or carve(*given))  # type: ignore[func-returns-value]
    return seen


@pytest.mark.parametrize("id_", [ONE_DEEP, TWO_DEEP])
@pytest.mark.parametrize("inference", [False, True])
def test_a_plan_does_not_hold_the_workspace_of_its_last_call(id_: str, inference: bool) -> None:
    plan, call = planned(id_)
    workspace = memory(plan)
    held, tensor = StorageWeakRef(workspace.untyped_storage()), ref(workspace)
    with torch.inference_mode(inference):
        first = call(workspace)
    del workspace
    assert (tensor(), held.expired()) == (None, True)
    torch.testing.assert_close(call(memory(plan)), first, rtol=0, atol=0)


def test_a_part_of_a_workspace_is_held_no_longer_than_the_whole() -> None:
    plan, call = planned(ONE_DEEP)
    whole = memory(plan)
    part = whole[: plan.workspace_bytes]
    held = StorageWeakRef(whole.untyped_storage())
    call(part)
    del whole
    assert not held.expired()
    del part
    assert held.expired()


@pytest.mark.parametrize("id_", [ONE_DEEP, TWO_DEEP])
def test_calls_that_share_a_workspace_carve_it_once(id_: str, carved: list[int]) -> None:
    plan, call = planned(id_)
    workspace = memory(plan)
    call(workspace)
    once = list(carved)
    assert once
    for given in (workspace, workspace[:], workspace):
        call(given)
    assert carved == once


def test_plans_that_share_a_workspace_keep_their_own_views(carved: list[int]) -> None:
    (first, call), (second, call_too) = planned(ONE_DEEP), planned(ONE_DEEP)
    workspace = memory(first)
    assert second.workspace_bytes == first.workspace_bytes
    results = [each(workspace) for each in (call, call_too, call, call_too)]
    assert len(carved) == 2 * len(set(carved))
    for result in results[1:]:
        torch.testing.assert_close(result, results[0], rtol=0, atol=0)
