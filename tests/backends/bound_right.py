"""Whether a bound plan computes right, into memory full of NaN, for problems of any kind."""

from __future__ import annotations

from collections.abc import Iterable

import torch

from convwright.core.binding import bind
from convwright.core.error_rule import absolute_objection
from convwright.core.finding import KindError
from convwright.core.kinds.problem import Problem
from convwright.core.plan import Plan
from convwright.core.policy import Policy
from convwright.measuring.checking.data import ERROR_KINDS, Kind, kinds_of, operands
from convwright.measuring.checking.error import errors_of
from convwright.measuring.checking.of_kind import whole_reference
from convwright.tensors import empty, lies_as, spoil_


def objection_to(plan: Plan, kinds: Iterable[Kind | str] = ERROR_KINDS, device: str = "cpu") -> str | None:
    """What is wrong with results of a plan, of each kind of data into a given output, and of the first one also of a
    second call and into memory of its own; None where nothing is."""
    problem: Problem = plan.candidate.problem
    place = torch.device(device)
    for turn, kind in enumerate(kinds_of(problem, kinds)):
        given = operands(problem, kind, place)
        right = whole_reference(problem, given)
        out = spoil_(empty(problem.output, place))
        workspace = torch.full((plan.workspace_bytes,), 0xFF, dtype=torch.uint8, device=place)
        bound = bind(plan, {**given, problem.outputs[-1]: out}, workspace)
        into = bound()
        if turn == 0:
            into = bound()
        if into.data_ptr() != out.data_ptr() and out.numel():
            return "the result is not in the output that was given"
        for result in (into, bind(plan, given, workspace)()) if turn == 0 else (into,):
            if not lies_as(result, problem.output):
                return f"the result has strides {result.stride()}"
            error = KindError(str(kind), *errors_of(result, right))
            if (said := absolute_objection(problem, plan.candidate.arithmetic, [error], Policy())) is not None:
                return f"{said}: {problem.key}"
    return None
