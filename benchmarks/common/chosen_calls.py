"""Calls of candidates on given operands, with all that they do at each call."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

import torch
from common import torch_calls
from torch import Tensor

from convwright.core.direction import Role
from convwright.core.plan import Plan
from convwright.core.policy import Weights
from convwright.core.problem import ConvProblem
from convwright.tuning.session import Choice


def call_of(choice: Choice, problem: ConvProblem, given: Mapping[Role, Tensor], weights: Weights) -> torch_calls.Call:
    """A call of a choice; PyTorch's own where that is what runs."""
    if choice.is_torch:
        return torch_calls.calls(["default"], problem, given)["default"]
    return call_of_plan(choice.plan(), problem, given, weights)


def call_of_plan(plan: Plan, problem: ConvProblem, given: Mapping[Role, Tensor], weights: Weights) -> torch_calls.Call:
    """The same of a plan. Where weights change, packing them is a part of each call."""
    first, second = (given[role] for role in problem.direction.operands)
    workspace = None
    if plan.workspace_bytes:
        workspace = torch.empty(plan.workspace_bytes, dtype=torch.uint8, device=first.device)
    rest = given.get(Role.BIAS), given.get(Role.RESIDUAL), None, workspace
    packed = plan.prepare(second) if Role.W in given else second
    is_packed = packed.layout is not torch.strided or packed.data_ptr() != second.data_ptr()
    if is_packed and weights is Weights.CHANGING:
        return lambda: plan(first, plan.prepare(second), *rest)
    return partial(plan, first, packed, *rest)
