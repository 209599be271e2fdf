"""The constants of a network as its steps read them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from convwright.core.binding import prepared
from convwright.core.plan import Plan
from convwright.core.tensor_spec import TensorSpec
from convwright.engine.assignment import Assignment, Step
from convwright.tensors import empty, lies_as


class Weights:
    """``tensors`` are all constants by name, on the device; ``operands`` those of each step by role, laid as its
    operation reads them, and packed. Nobody writes to them, so that several programs may share them."""

    def __init__(
        self,
        assignment: Assignment,
        plans: Sequence[Plan | None],
        constants: Mapping[str, Tensor],
        device: torch.device,
    ) -> None:
        self.tensors = {name: constants[name].to(device) for name in assignment.constants}
        steps = zip(assignment.steps, plans, strict=True)
        self.operands = [{} if plan is None else self._operands(step, plan) for step, plan in steps]

    def _operands(self, step: Step, plan: Plan) -> Mapping[str, Tensor]:
        of = step.operation.operands
        read = {role: _laid(self.tensors[name], of[role]) for role, name in step.reads if name in self.tensors}
        return prepared(plan, read)


def _laid(tensor: Tensor, spec: TensorSpec) -> Tensor:
    """A constant as an operation takes it."""
    return tensor if lies_as(tensor, spec) else empty(spec, tensor.device).copy_(tensor)
