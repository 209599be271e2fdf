"""Bind a plan to operands: a call without arguments, for repeated calls."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from convwright.core.candidate import Candidate
from convwright.core.direction import Role
from convwright.core.fusing import rare_operands
from convwright.core.kinds.problem import Problem
from convwright.core.plan import Plan
from convwright.core.problem import ConvProblem
from convwright.errors import BadInput

if TYPE_CHECKING:
    from torch import Tensor

Bound = Callable[[], "Tensor"]


@runtime_checkable
class Binds(Protocol):
    """A plan with its own way to become a call without arguments, from operands with a prepared weight."""

    def bind(self, operands: Mapping[str, Tensor], workspace: Tensor | None = None) -> Bound: ...


def bind(plan: Plan, operands: Mapping[str, Tensor], workspace: Tensor | None = None) -> Bound:
    """A call of ``plan`` on these operands, by role, that returns the result.

    If the output is among the operands, the result is written there; otherwise each call allocates its own. A weight is
    packed here, once: bind again when it changes. A problem that accumulates adds to its output, which must be given.
    """
    check_operands(plan.candidate.problem, operands)
    return bind_prepared(plan, prepared(plan, operands), workspace)


def prepared(plan: Plan, operands: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
    """The operands with the weight packed, if there is one."""
    problem: Problem = plan.candidate.problem
    if Role.W not in operands or Role.W in problem.outputs:
        return operands
    return {**operands, Role.W: plan.prepare(operands[Role.W])}


def bind_prepared(plan: Plan, operands: Mapping[str, Tensor], workspace: Tensor | None = None) -> Bound:
    """The same for complete operands with a prepared weight."""
    if isinstance(plan, Binds):
        return plan.bind(operands, workspace)
    problem: Problem = plan.candidate.problem
    assert isinstance(problem, ConvProblem), "plans of other kinds bind by themselves"
    first, second = (operands[role] for role in problem.direction.operands)
    rare = {role.value: operands[role] for role in rare_operands(problem)}
    out = operands.get(problem.outputs[-1])
    return partial(plan, first, second, operands.get(Role.BIAS), operands.get(Role.RESIDUAL), out, workspace, **rare)


def check_operands(problem: Problem, operands: Mapping[str, Tensor]) -> None:
    """Refuse missing operands, and operands that the problem does not have."""
    # The previous contents of an output are in the output itself.
    wanted = [role for role in problem.operands if role != problem.outputs[-1] and role != Role.BEFORE]
    missing = [str(role) for role in wanted if role not in operands]
    unknown = [str(role) for role in operands if role not in problem.operands]
    if missing or unknown:
        roles, given = ", ".join(map(str, wanted)), ", ".join(map(str, operands)) or "none"
        raise BadInput(f"{problem.key} takes {roles}, and {problem.outputs[-1]} to write to, got {given}")


class RolePlan(ABC):
    """A plan for a problem whose operands are known by role only. It is called with its operands in order, or by
    name."""

    candidate: Candidate
    workspace_bytes: int = 0
    writes_out: bool = True

    @abstractmethod
    def bind(self, operands: Mapping[str, Tensor], workspace: Tensor | None = None) -> Bound:
        """A call on these operands, which are complete and have a prepared weight."""

    def prepare(self, weight: Tensor) -> Tensor:
        """The weight itself: nothing is packed."""
        return weight

    def compute(self, operands: Mapping[str, Tensor], workspace: Tensor | None = None) -> Tensor:
        """The result for operands that were checked and have a prepared weight."""
        return self.bind(operands, workspace)()

    def __call__(self, /, *operands: Tensor | None, **named: Tensor | None) -> Tensor:
        problem: Problem = self.candidate.problem
        workspace, out = named.pop("workspace", None), named.pop("out", None)
        roles = [role for role in problem.operands if role not in problem.outputs]
        given = dict(zip(roles, operands, strict=False)) | named | {problem.outputs[-1]: out}
        there = {role: tensor for role, tensor in given.items() if tensor is not None}
        if len(operands) > len(roles):
            raise BadInput(f"{problem.key} takes {', '.join(roles)}, got {len(operands)} operands")
        check_operands(problem, there)
        return self.bind(prepared(self, there), workspace)()
