"""PyTorch's own operators for resizing: the baseline."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor

from convwright.backends.torch_native.whole import torch_version, why_not_asked
from convwright.core.binding import Bound, RolePlan
from convwright.core.candidate import Candidate, Offer, Refusal, Source
from convwright.core.device import DeviceFacts
from convwright.core.dtype import plain_arithmetic
from convwright.core.kinds.resize import Interpolation, ResizeProblem
from convwright.core.policy import Policy
from convwright.tensors import empty, laid_, lies_as

_ops: Any = torch.ops
_LINEAR = {1: "linear1d", 2: "bilinear2d", 3: "trilinear3d"}


class TorchResize:
    """``torch/default`` is the operator that ``F.interpolate`` calls. It writes to the output if that has the
    operator's layout; otherwise the result is copied there."""

    name = "torch"

    def fingerprint(self, device: DeviceFacts) -> str:
        return torch_version()

    def candidates(self, problem: ResizeProblem, device: DeviceFacts, policy: Policy) -> Iterator[Offer]:
        reason = why_not_asked(device)
        if reason is not None:
            yield Refusal("torch/default", reason)
            return
        yield Candidate(problem, "torch", "default", (), plain_arithmetic(problem.dtype), 0, True, Source.RULE)

    def build(self, candidate: Candidate, device: DeviceFacts) -> TorchResizePlan:
        return TorchResizePlan(candidate)


class TorchResizePlan(RolePlan):
    """Calls the operator with the sizes and scales of a problem."""

    def __init__(self, candidate: Candidate) -> None:
        self.candidate = candidate
        self._problem: ResizeProblem = candidate.problem
        self._operator, self._arguments = _called(self._problem)
        x = self._problem.x
        one = replace(x, shape=(max(x.shape[0], 1), *x.shape[1:]))  # on "meta" PyTorch's function needs an image
        made: Tensor = self._operator(empty(one, "meta"), *self._arguments)
        self.writes_out = lies_as(made, self._problem.y)

    def bind(self, operands: Mapping[str, Tensor], workspace: Tensor | None = None) -> Bound:
        x, out, spec = operands["x"], operands.get("y"), self._problem.y
        call: Callable[..., Tensor] = partial(self._operator, x, *self._arguments)
        if out is None:
            return lambda: laid_(call(), spec)
        if self.writes_out:
            return partial(self._operator.out, x, *self._arguments, out=out)
        return lambda: out.copy_(call())


def _called(problem: ResizeProblem) -> tuple[Any, tuple[Any, ...]]:
    """The operator, and its arguments after the image."""
    rank, sizes = len(problem.sizes), [out for _, out in problem.sizes]
    is_linear = problem.interpolation is Interpolation.LINEAR
    name = _LINEAR[rank] if is_linear else f"nearest{rank}d"
    corners = (problem.aligned_corners,) if is_linear else ()
    return getattr(_ops.aten, f"upsample_{name}"), (sizes, *corners, *(problem.scales or (None,) * rank))
