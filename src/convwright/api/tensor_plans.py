"""Plans of kinds other than convolutions, bound to their operands: checked once, then called without arguments."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
from torch import Tensor

from convwright.api.foreign_arrays import OperandForm, check_form, check_workspace
from convwright.core.binding import bind, check_operands
from convwright.core.candidate import Candidate
from convwright.core.device import DeviceFacts
from convwright.core.kinds.problem import Problem
from convwright.core.plan import Plan
from convwright.eager.running.oom_fallback import short_of
from convwright.eager.running.runner import on_device
from convwright.errors import BadInput
from convwright.shortage import SHORTAGES, is_shortage


def bound_call(
    plan: Plan, facts: DeviceFacts, operands: Mapping[str, Tensor], workspace: Tensor | None
) -> Callable[[], Tensor]:
    """A call of ``plan`` without arguments, on operands of its problem. It records no gradient, and autocast does not
    change its operands."""
    device = torch.device(str(facts.torch_name))
    if workspace is not None:
        check_workspace(workspace, plan.workspace_bytes, device)
    out = operands.get(plan.candidate.problem.outputs[-1])
    with torch.autocast(device.type, enabled=False):
        run = on_device(bind(plan, {role: each.detach() for role, each in operands.items()}, workspace), device)
    is_cast = plan.candidate.leaf.backend == "torch"  # autocast changes the operands of these

    def call() -> Tensor:
        try:
            if is_cast and torch.is_autocast_enabled(device.type):
                with torch.autocast(device.type, enabled=False):
                    made = run()
            else:
                made = run()
        except SHORTAGES as error:
            if workspace is not None or not is_shortage(error):
                raise
            raise short_of(plan.candidate, facts, plan.workspace_bytes, error) from error
        return made if out is None else out

    return call


def check_forms(problem: Problem, operands: Mapping[str, Tensor], device: torch.device) -> None:
    """Refuse operands that are missing or differ from the problem."""
    check_operands(problem, operands)
    for role, given in operands.items():
        check_form(given, OperandForm.posed(problem.operands[role]), str(role), device)


class TensorPlan:
    """A plan of a matrix product, an expression, a copy, pooling or a resize. Call it with its operands, by name or in
    the order of ``problem.operands``. The result is written to ``out``, or to a new tensor at each call.

    ``bind`` checks operands once. The call that it returns takes no arguments and looks nothing up.

    An operand with other sizes, strides, dtype, device or alignment than the problem's is refused. No gradient is
    recorded.

    >>> import convwright as cw
    >>> ready = cw.plan('pointwise "relu(a + s)" mb2ic3 s:1', device="cpu", algorithm="torch/default")
    >>> a, s = torch.tensor([[1.0, -3.0, 2.0], [0.0, 5.0, -2.0]]), torch.ones(1, 1)
    >>> ready(a, s)
    tensor([[2., 0., 3.],
            [1., 6., 0.]])
    >>> y = torch.empty(2, 3)
    >>> call = ready.bind(a=a, s=s, y=y)
    >>> call() is y
    True
    """

    def __init__(self, ready: Plan, device: DeviceFacts) -> None:
        self._plan, self._facts, self._device = ready, device, torch.device(str(device.torch_name))

    def __repr__(self) -> str:
        return f"<TensorPlan: {self.candidate.id} for {self.problem.key} on {self._device}>"

    @property
    def candidate(self) -> Candidate:
        return self._plan.candidate

    @property
    def problem(self) -> Problem:
        posed: Problem = self.candidate.problem
        return posed

    @property
    def workspace_bytes(self) -> int:
        """The workspace of a call in bytes. A given workspace must be aligned to 256 bytes."""
        return self._plan.workspace_bytes

    def bind(self, /, *, workspace: Tensor | None = None, **operands: Tensor) -> Callable[[], Tensor]:
        """A call without arguments on these operands, by name. Their values may change between calls, except for the
        weight ``w`` of a matrix product, which may be packed here: bind again if it changes.

        With the output among the operands, and a workspace if one is needed, calls allocate nothing.
        """
        check_forms(self.problem, operands, self._device)
        return bound_call(self._plan, self._facts, operands, workspace)

    def __call__(
        self, /, *operands: Tensor, out: Tensor | None = None, workspace: Tensor | None = None, **named: Tensor
    ) -> Tensor:
        """Bind and compute, once."""
        roles = [role for role in self.problem.operands if role not in self.problem.outputs]
        if len(operands) > len(roles):
            raise BadInput(f"{self.problem.key} takes {', '.join(roles)}, got {len(operands)} operands")
        given = dict(zip(roles, operands, strict=False))
        if twice := [role for role in named if role in given]:
            raise BadInput(f"`{twice[0]}` is given twice, by its place and by its name")
        written = {} if out is None else {self.problem.outputs[-1]: out}
        return self.bind(workspace=workspace, **given, **named, **written)()
