"""Pooling by PyTorch's own functions: the baseline, and the same into memory that is given."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

import torch
from torch import Tensor

from convwright import torch_api
from convwright.backends.torch_native.whole import torch_version, why_not_asked
from convwright.core.binding import Bound, RolePlan
from convwright.core.candidate import Candidate, Offer, Refusal, Source
from convwright.core.device import DeviceFacts
from convwright.core.dtype import DType, plain_arithmetic
from convwright.core.kinds.pool import PoolProblem
from convwright.core.kinds.pool_window import Pooling
from convwright.core.policy import Policy
from convwright.core.tensor_spec import Layout, dense_strides, same_order
from convwright.tensors import allocator, laid_
from convwright.torch_pooling import arguments, in_2d, pooled

_INTO = "into"
# PyTorch writes here the index of the largest element of each window.
_INDEX = torch.int64


class TorchPool:
    """``torch/default`` is PyTorch's function, which allocates its output. ``torch/into`` writes to a given output; for
    a maximum, indices go to the workspace."""

    name = "torch"

    def fingerprint(self, device: DeviceFacts) -> str:
        return torch_version()

    def candidates(self, problem: PoolProblem, device: DeviceFacts, policy: Policy) -> Iterator[Offer]:
        reason = why_not_asked(device) or _why_not_pytorch(problem, device)
        if reason is not None:
            yield from (Refusal(f"torch/{name}", reason) for name in ("default", _INTO))
            return
        yield _candidate(problem, "default", 0)
        reason = _why_not_into(problem)
        yield Refusal(f"torch/{_INTO}", reason) if reason else _candidate(problem, _INTO, _index_bytes(problem))

    def build(self, candidate: Candidate, device: DeviceFacts) -> RolePlan:
        if candidate.algorithm == _INTO:
            return PoolIntoPlan(candidate, torch.device(device.torch_name or "cpu"))
        return TorchPoolPlan(candidate)


def _candidate(problem: PoolProblem, name: str, workspace_bytes: int) -> Candidate:
    arithmetic = plain_arithmetic(problem.dtype)
    return Candidate(problem, "torch", name, (), arithmetic, workspace_bytes, True, Source.RULE)


def _why_not_pytorch(problem: PoolProblem, device: DeviceFacts) -> str | None:
    """PyTorch's function for averages of volumes supports fewer cases than the others."""
    if problem.pooling is Pooling.MAX or problem.rank < 3:
        return None
    if device.kind == "cpu" and problem.dtype not in (DType.FP64, DType.FP32):
        return f"averages volumes on a CPU only in fp64 and fp32, got {problem.dtype}"
    sizes = problem.x.shape[2:]
    if any(size < window for size, window in zip(sizes, problem.taps, strict=True)):
        return f"averages only volumes at least as large as the window, got {sizes} and {problem.taps}"
    return None


def _why_not_into(problem: PoolProblem) -> str | None:
    """PyTorch's functions require the layout that they would choose for the output."""
    layout = problem.x.layout
    if not problem.y.numel:
        return f"needs a non-empty output, got {problem.y.shape}"
    if layout is Layout.STRIDED or (layout is Layout.NHWC and problem.rank != 2):
        return "needs an input in nchw or, in two dimensions, in nhwc"
    if not same_order(problem.y.shape, problem.y.strides, dense_strides(problem.y.shape, layout)):
        return f"needs the output in the input's layout, {layout}, got {problem.y.layout}"
    return None


def _index_bytes(problem: PoolProblem) -> int:
    """Bytes of the indices of a maximum."""
    return problem.y.numel * _INDEX.itemsize if problem.pooling is Pooling.MAX else 0


class TorchPoolPlan(RolePlan):
    """The result has the problem's layout. If PyTorch returns another layout, it is copied, and the copy is timed."""

    writes_out = False

    def __init__(self, candidate: Candidate) -> None:
        self.candidate = candidate
        self._problem: PoolProblem = candidate.problem

    def bind(self, operands: Mapping[str, Tensor], workspace: Tensor | None = None) -> Bound:
        return lambda: self.compute(operands)

    def compute(self, operands: Mapping[str, Tensor], workspace: Tensor | None = None) -> Tensor:
        made, out = pooled(self._problem, operands["x"]), operands.get("y")
        return laid_(made, self._problem.y) if out is None else out.copy_(made)


class PoolIntoPlan(RolePlan):
    """A line is computed as an image of height 1, since the functions for lines take no output."""

    def __init__(self, candidate: Candidate, device: torch.device) -> None:
        self.candidate = candidate
        problem: PoolProblem = candidate.problem
        self.workspace_bytes = _index_bytes(problem)
        layout = problem.x.layout
        self._strides = {role: dense_strides(spec.shape, layout) for role, spec in problem.operands.items()}
        self._new, self._is_line = allocator(problem.y, device), problem.rank == 1
        name = f"avg_pool{max(problem.rank, 2)}d"
        if problem.pooling is Pooling.MAX:
            name = f"max_pool{max(problem.rank, 2)}d_with_indices"
        given = in_2d(problem) if self._is_line else arguments(problem)
        self._into: Callable[..., Any] = partial(getattr(torch_api.nn_functions, name), **given)

    def bind(self, operands: Mapping[str, Tensor], workspace: Tensor | None = None) -> Bound:
        x, out = operands["x"], operands.get("y")
        if out is None:
            return lambda: self.bind({"x": x, "y": self._new()}, workspace)()
        x, y = self._plain("x", x), self._plain("y", out)
        written: Any = y
        if self.workspace_bytes:
            if workspace is None:
                workspace = torch.empty(self.workspace_bytes, dtype=torch.uint8, device=out.device)
            written = y, torch.as_strided(workspace[: self.workspace_bytes].view(_INDEX), y.shape, y.stride())
        into = partial(self._into, x, out=written)

        def call() -> Tensor:
            into()
            return out

        return call

    def _plain(self, role: str, tensor: Tensor) -> Tensor:
        """Dimensions of size 1 get regular strides, from which PyTorch infers the layout."""
        plain = tensor.as_strided(tensor.shape, self._strides[role])
        return plain.unsqueeze(2) if self._is_line else plain
