"""A plan bound to eager calls: it allocates the output, finds the workspace and keeps a packed weight."""

from __future__ import annotations

import weakref
from collections.abc import Callable

import torch
from torch import Tensor

from convwright.core.plan import Plan
from convwright.ops.workspace import workspace

Runner = Callable[..., Tensor]


def runner(plan: Plan, device: torch.device, *, packs_weight: bool, weights_constant: bool) -> Runner:
    """The shortest callable ``(first, second, bias, residual, out)`` that runs ``plan``.

    ``packs_weight`` says that the second operand is a weight, which goes through ``plan.prepare`` first: at every
    call where weights change, once per weight where they are constant.
    """
    if not plan.writes_out:
        return plan
    pack = (_Kept(plan.prepare) if weights_constant else plan.prepare) if packs_weight else None
    nbytes = plan.workspace_bytes

    def run(
        first: Tensor,
        second: Tensor,
        bias: Tensor | None = None,
        residual: Tensor | None = None,
        out: Tensor | None = None,
    ) -> Tensor:
        if pack is not None:
            second = pack(second)
        return plan(first, second, bias, residual, out, workspace(nbytes, device) if nbytes else None)

    return run


class _Kept:
    """Packs a weight once, and again only when it was written to."""

    __slots__ = ("packed", "prepare", "version", "weight")

    def __init__(self, prepare: Callable[[Tensor], Tensor]) -> None:
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
