"""A plan bound to eager calls: it finds the workspace, packs the weight, and looks at addresses."""

from __future__ import annotations

import weakref
from collections.abc import Callable

import torch
from torch import Tensor

from convwright.core.direction import Direction
from convwright.core.plan import Plan
from convwright.ops.workspace import workspace

Runner = Callable[..., Tensor]
Pack = Callable[[Tensor], Tensor]


def runner(plan: Plan, operands: tuple[Tensor, Tensor], torchs_own: Plan, *, weights_constant: bool) -> Runner:
    """The shortest callable ``(first, second, bias, residual, out)`` that runs ``plan`` on tensors like these.

    A slot's check does not see addresses: a call with operands that are less aligned than the problem says goes to
    PyTorch's own plan.
    """
    if not plan.writes_out:
        return plan
    second_is_weight = plan.candidate.problem.direction is not Direction.BACKWARD_WEIGHT
    pack = _packing(plan, operands[1], weights_constant=weights_constant) if second_is_weight else None
    run = _bound(plan, pack, operands[0].device)
    return run if operands[0].device.type == "cpu" else _aligned(run, plan, torchs_own)


def _packing(plan: Plan, weight: Tensor, *, weights_constant: bool) -> Pack | None:
    """How a weight becomes what the kernel wants; None where weights of this layout are so already."""
    weight = weight.detach()
    if plan.prepare(weight) is weight:
        return None
    return _Kept(plan.prepare) if weights_constant else plan.prepare


def _bound(plan: Plan, pack: Pack | None, device: torch.device) -> Runner:
    scratch = workspace(plan.workspace_bytes, device) if plan.workspace_bytes else None
    if pack is None and scratch is None:
        return plan

    def run(
        first: Tensor,
        second: Tensor,
        bias: Tensor | None = None,
        residual: Tensor | None = None,
        out: Tensor | None = None,
    ) -> Tensor:
        if pack is not None:
            second = pack(second)
        return plan(first, second, bias, residual, out, scratch() if scratch is not None else None)

    return run


def _aligned(run: Runner, plan: Plan, torchs_own: Plan) -> Runner:
    """``run`` where all addresses are multiples of what the problem says, or 16 bytes for bias and output."""
    problem = plan.candidate.problem
    first_role, second_role = problem.direction.operands
    mask = max(problem.operands[first_role].alignment, problem.operands[second_role].alignment) - 1
    out_mask = problem.output.alignment - 1

    def checked(
        first: Tensor,
        second: Tensor,
        bias: Tensor | None = None,
        residual: Tensor | None = None,
        out: Tensor | None = None,
    ) -> Tensor:
        at = first.data_ptr() | second.data_ptr()
        if bias is not None:
            at |= bias.data_ptr()
        at &= mask
        if residual is not None:
            at |= residual.data_ptr() & out_mask
        if out is not None:
            at |= out.data_ptr() & out_mask
        return torchs_own(first, second, bias, residual, out) if at else run(first, second, bias, residual, out)

    return checked


class _Kept:
    """Packs a weight once, and again only when it was written to."""

    __slots__ = ("packed", "prepare", "version", "weight")

    def __init__(self, prepare: Pack) -> None:
        self.prepare = prepare
        self.weight: weakref.ref[Tensor] | None = None
        self.version: tuple[int, int] = (-1, 0)
        self.packed: Tensor | None = None

    def __call__(self, weight: Tensor) -> Tensor:
        if weight.is_inference():
            return self.prepare(weight)  # it has no version that would tell of a change
        # A new weight can have the id, the address and the version of one that is gone: only the object itself tells.
        version = (weight._version, weight.data_ptr())
        if self.packed is None or self.weight is None or self.weight() is not weight or self.version != version:
            self.packed = self.prepare(weight.detach())
            self.weight, self.version = weakref.ref(weight), version
        return self.packed
