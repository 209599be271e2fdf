"""Bind a plan to eager calls: allocate the workspace, pack the weight, check addresses."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import torch
from torch import Tensor

from convwright import torch_api
from convwright.backends.torch_native.own import TorchPlan
from convwright.core.direction import Direction
from convwright.core.plan import Plan
from convwright.eager.running.packed_once import Pack, PackedOnce
from convwright.eager.running.workspace import workspace
from convwright.measuring.ranges import without_range
from convwright.shortage import SHORTAGES
from convwright.tensors import empty, spec_of

if TYPE_CHECKING:
    from convwright.eager.running.oom_fallback import OomFallback

Runner = Callable[..., Tensor]
Made = TypeVar("Made")
Operands = tuple[Tensor, Tensor, Tensor | None, Tensor | None]


def runner(
    plan: Plan, operands: Operands, torchs_own: Runner, *, weights_constant: bool, stays: bool, fallback: OomFallback
) -> Runner:
    """The fastest callable ``(first, second, bias, residual, out)`` that runs ``plan`` on tensors like these, or
    ``fallback`` if memory runs out.

    Strides and device are fixed by a slot's check, so they are handled once, here. Addresses are not: a call whose
    operands are less aligned than the problem says goes to PyTorch's own plan. If the plan ``stays``, its operands are
    copied instead, whatever that costs.
    """
    if isinstance(plan, TorchPlan):
        return plan.bare  # PyTorch packs nothing, and takes any alignment
    if isinstance(without_range(plan), TorchPlan):
        return plan
    device = operands[0].device
    second_is_weight = plan.candidate.problem.direction is not Direction.BACKWARD_WEIGHT
    pack: Pack | None = None
    if second_is_weight and plan.prepare(weight := operands[1].detach()) is not weight:
        pack = PackedOnce(plan.prepare) if weights_constant else plan.prepare
    run = _with_extras(_bound(plan, pack, device, fallback), plan, operands)
    if device.type == "cpu":
        return run
    astray = _with_copies(run, plan) if stays else torchs_own
    return on_device(_aligned(run, plan, astray, packed=pack is not None), device)


def _bound(plan: Plan, pack: Pack | None, device: torch.device, fallback: OomFallback) -> Runner:
    needed_bytes = plan.workspace_bytes
    scratch = workspace(needed_bytes, device) if needed_bytes else None
    if pack is None and scratch is None:
        return plan
    short = False

    def run(
        first: Tensor,
        second: Tensor,
        bias: Tensor | None = None,
        residual: Tensor | None = None,
        out: Tensor | None = None,
    ) -> Tensor:
        nonlocal short
        if short:
            if fallback.lasts():
                return fallback.serving(first, second, bias, residual, out)
            short = False
        try:
            packed = second if pack is None else pack(second)
            return plan(first, packed, bias, residual, out, None if scratch is None else scratch())
        except SHORTAGES as error:
            fallback.begin(error, needed_bytes)
        short = True
        return fallback.serving(first, second, bias, residual, out)

    return run


def _with_extras(run: Runner, plan: Plan, operands: Operands) -> Runner:
    """``run`` with copies of a bias or residual whose layout differs from the problem's."""
    problem, (_, _, bias, residual) = plan.candidate.problem, operands
    lay_bias = bias is not None and not bias.is_contiguous()
    lay_residual = residual is not None and spec_of(residual).strides != problem.y.strides
    if not (lay_bias or lay_residual):
        return run

    def laid(
        first: Tensor,
        second: Tensor,
        bias: Tensor | None = None,
        residual: Tensor | None = None,
        out: Tensor | None = None,
    ) -> Tensor:
        if lay_bias and bias is not None:
            bias = bias.contiguous()
        if lay_residual and residual is not None:
            residual = empty(problem.y, residual.device).copy_(residual)
        return run(first, second, bias, residual, out)

    return laid


def _with_copies(run: Runner, plan: Plan) -> Runner:
    """``run`` on copies of its operands in the layouts of the problem."""
    problem = plan.candidate.problem
    first_spec, second_spec = (problem.operands[role] for role in problem.direction.operands)

    def copying(
        first: Tensor,
        second: Tensor,
        bias: Tensor | None = None,
        residual: Tensor | None = None,
        out: Tensor | None = None,
    ) -> Tensor:
        first, second = empty(first_spec, first.device).copy_(first), empty(second_spec, second.device).copy_(second)
        bias = None if bias is None else bias.clone()
        residual = None if residual is None else empty(problem.y, residual.device).copy_(residual)
        y = run(first, second, bias, residual, None)
        return y if out is None else out.copy_(y)

    return copying


def _aligned(run: Runner, plan: Plan, astray: Runner, *, packed: bool) -> Runner:
    """``run`` if each operand's address has the alignment that the problem states, 16 bytes for a bias; otherwise
    ``astray``."""
    problem = plan.candidate.problem
    first_role, second_role = problem.direction.operands
    first_mask = problem.operands[first_role].alignment - 1
    second_mask = 0 if packed else problem.operands[second_role].alignment - 1
    out_mask = problem.output.alignment - 1

    def checked(
        first: Tensor,
        second: Tensor,
        bias: Tensor | None = None,
        residual: Tensor | None = None,
        out: Tensor | None = None,
    ) -> Tensor:
        off = first.data_ptr() & first_mask | second.data_ptr() & second_mask
        if bias is not None:
            off |= bias.data_ptr() & 15
        if residual is not None:
            off |= residual.data_ptr() & out_mask
        if out is not None:
            off |= out.data_ptr() & out_mask
        return (astray if off else run)(first, second, bias, residual, out)

    return checked


def on_device(run: Callable[..., Made], device: torch.device) -> Callable[..., Made]:
    """``run`` with ``device`` as the current GPU; ``run`` itself if there is only one."""
    if device.type == "cpu" or torch.cuda.device_count() < 2:
        return run
    current = torch_api.current_gpu

    def switched(*operands: Any, **more: Any) -> Made:
        if current() == device.index:
            return run(*operands, **more)
        with torch.cuda.device(device):
            return run(*operands, **more)

    return switched
