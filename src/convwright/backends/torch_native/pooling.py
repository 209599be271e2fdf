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
# Where PyTorch writes which element of the input is the largest of a window.
_INDEX = torch.int64


class TorchPool:
    """``torch/default`` is PyTorch's function, which makes its output. ``torch/into`` writes to the one that is given;
    of a maximum the function also writes indices, which go to the workspace."""

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
    """Volumes are averaged by a function that serves less than the others do."""
    if problem.pooling is Pooling.MAX or problem.rank < 3:
        return None
    if device.kind == "cpu" and problem.dtype not in (DType.FP64, DType.FP32):
        return f"averages volumes of fp64 and fp32 on a CPU, got {problem.dtype}"
    sizes = problem.x.shape[2:]
    if any(size < window for size, window in zip(sizes, problem.taps, strict=True)):
        return f"averages volumes that are at least as large as the window, got {sizes} and {problem.taps}"
    return None


def _why_not_into(problem: PoolProblem) -> str | None:
    """PyTorch's functions take it that an output lies as they would lay their own."""
    layout = problem.x.layout
    if not problem.y.numel:
        return f"needs something to compute, got an output of {problem.y.shape}"
    if layout is Layout.STRIDED or (layout is Layout.NHWC and problem.rank != 2):
        return "writes where the input lies as nchw or, of two dimensions, as nhwc"
    if not same_order(problem.y.shape, problem.y.strides, dense_strides(problem.y.shape, layout)):
        return f"writes an output that lies as the input does, {layout}, got {problem.y.layout}"
    return None


def _index_bytes(problem: PoolProblem) -> int:
    """What the indices take that belong to a maximum."""
    return problem.y.numel * _INDEX.itemsize if problem.pooling is Pooling.MAX else 0


class TorchPoolPlan(RolePlan):
    """The result lies as the problem's does: what PyTorch lays otherwise is copied, and counts."""

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
    """A line is an image with a height of 1, since the functions for lines are given no output."""

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
        """Single elements have strides, too, by which PyTorch tells its layouts apart."""
        plain = tensor.as_strided(tensor.shape, self._strides[role])
        return plain.unsqueeze(2) if self._is_line else plain
