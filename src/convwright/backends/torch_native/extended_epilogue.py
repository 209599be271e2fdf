"""PyTorch's own functions, one after another, for an epilogue that no single PyTorch call computes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import torch
from torch import Tensor

from convwright.core.candidate import Candidate
from convwright.core.direction import Direction
from convwright.core.epilogue import Activation, Epilogue
from convwright.core.problem import ConvProblem
from convwright.epilogue_math import ahead, finish_
from convwright.tensors import laid_

Compute = Callable[..., Tensor]


class ExtendedEpiloguePlan:
    """Runs ``torch/default`` for an epilogue that scales, accumulates, or is applied to a gradient."""

    workspace_bytes = 0
    writes_out = False

    def __init__(self, candidate: Candidate, alone: Callable[[Candidate], Compute]) -> None:
        problem = candidate.problem
        self.candidate = candidate
        self._spec = problem.output
        self._epilogue = problem.epilogue
        self._convolve = alone(replace(candidate, problem=replace(problem, epilogue=Epilogue())))
        forward = problem.direction is Direction.FORWARD
        self._compute = self._forward if forward else self._backward(problem)

    def prepare(self, weight: Tensor) -> Tensor:
        return weight

    def __call__(
        self,
        first: Tensor,
        second: Tensor,
        bias: Tensor | None = None,
        residual: Tensor | None = None,
        out: Tensor | None = None,
        workspace: Tensor | None = None,
        *,
        scale: Tensor | None = None,
        z: Tensor | None = None,
        db: Tensor | None = None,
    ) -> Tensor:
        result = self._compute(first, second, bias, residual, scale, z, db)
        if out is None:
            return laid_(result, self._spec)
        return out.add_(result) if self._epilogue.accumulate else out.copy_(result)

    def _forward(
        self,
        x: Tensor,
        w: Tensor,
        bias: Tensor | None,
        residual: Tensor | None,
        scale: Tensor | None,
        _z: Tensor | None,
        _db: Tensor | None,
    ) -> Tensor:
        y = self._convolve(x, w, None, None)
        return finish_(y, self._epilogue.activation, scale=scale, residual=residual, bias=bias)

    def _backward(self, problem: ConvProblem) -> Compute:
        dy_first = problem.direction is Direction.BACKWARD_DATA
        epilogue = self._epilogue
        changed = epilogue.scale or epilogue.activation is not Activation.NONE

        def backward(
            first: Tensor,
            second: Tensor,
            _bias: Tensor | None,
            _residual: Tensor | None,
            scale: Tensor | None,
            z: Tensor | None,
            db: Tensor | None,
        ) -> Tensor:
            dy = first if dy_first else second
            into = torch.empty_like(dy) if changed else None
            through = torch.empty_like(db) if db is not None and epilogue.accumulate else None
            dz = ahead(dy, epilogue.activation, z=z, scale=scale, db=db, into=into, through=through)
            return self._convolve(*((dz, second) if dy_first else (first, dz)), None, None)

        return backward
