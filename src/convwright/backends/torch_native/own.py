"""``F.conv2d``, its siblings and their gradients: the baseline of every table."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from convwright import flags
from convwright.core.candidate import Candidate, Config, Source
from convwright.core.direction import Direction
from convwright.core.dtype import Arithmetic, DType, native_arithmetic
from convwright.core.epilogue import Activation
from convwright.core.problem import ConvProblem
from convwright.core.tensor_spec import TensorSpec, dense_strides
from convwright.tensors import activate, activate_, laid_

FORWARD: dict[int, Callable[..., Tensor]] = {1: F.conv1d, 2: F.conv2d, 3: F.conv3d}
Gradients = tuple[Tensor | None, Tensor | None, Tensor | None]
_backward: Callable[..., Gradients] = torch.ops.aten.convolution_backward.default


def torch_candidate(problem: ConvProblem, config: Config = (), *, cpu: bool = False) -> Candidate:
    """PyTorch's own call for ``problem``."""
    return Candidate(
        problem=problem,
        backend="torch",
        algorithm="default",
        config=config,
        arithmetic=native_arithmetic(problem.dtype, tf32=("tf32", "on") in config),
        workspace_bytes=0,  # PyTorch allocates its workspace, within its own limit
        deterministic=True if cpu or flags.deterministic() else None,
        source=Source.RULE,
        saves_products=not cpu,  # cuDNN may use a Winograd kernel: 90 µs were measured against an fp32 limit of 100
    )


class TorchPlan:
    """Runs one of PyTorch's own operators: by default its call for the problem, with the candidate's TF32 flag.

    The output has the problem's layout. If PyTorch returns another layout, it is copied, and the copy is timed.
    ``bare`` does the same in less host time, and returns new outputs in PyTorch's layout.
    """

    workspace_bytes = 0
    writes_out = False

    def __init__(
        self,
        candidate: Candidate,
        compute: Callable[..., Tensor] | None = None,
        *,
        bare: Callable[..., Tensor] | None = None,
    ) -> None:
        self.candidate = candidate
        self._spec = candidate.problem.output
        self._compute = compute or bare or own(candidate)
        self._bare = bare

    @property
    def bare(self) -> Callable[..., Tensor]:
        return self._bare or self._as_made

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
    ) -> Tensor:
        result = self._as_made(first, second, bias, residual, out)
        return laid_(result, self._spec) if out is None else result

    def _as_made(
        self,
        first: Tensor,
        second: Tensor,
        bias: Tensor | None = None,
        residual: Tensor | None = None,
        out: Tensor | None = None,
    ) -> Tensor:
        result = self._compute(first, second, bias, residual)
        return result if out is None else out.copy_(result)


def own(candidate: Candidate) -> Callable[..., Tensor]:
    """PyTorch's call ``(first, second, bias, residual)``, with the candidate's TF32 flag."""
    problem = candidate.problem
    compute = {
        Direction.FORWARD: _forward,
        Direction.BACKWARD_DATA: _backward_data,
        Direction.BACKWARD_WEIGHT: _backward_weight,
    }[problem.direction](problem)
    return flags.with_tf32(compute, candidate.arithmetic is Arithmetic.TF32) if candidate.config else compute


def _forward(problem: ConvProblem) -> Callable[..., Tensor]:
    convolve, padding = FORWARD[problem.rank], problem.symmetric_padding
    outside = [side for pair in reversed(problem.padding) for side in pair]
    activation = problem.epilogue.activation
    flipped = tuple(range(2, problem.rank + 2)) if problem.flip else None
    # In-place operations keep the strides of dimensions of size 1, which a sum or an activation would change.
    shape, in_planes = problem.y.shape, dense_strides(problem.y.shape)
    is_open = 1 in shape and (problem.epilogue.residual or activation is not Activation.NONE)
    window = problem.stride, padding or 0, problem.dilation, problem.groups

    def forward(x: Tensor, w: Tensor, bias: Tensor | None, residual: Tensor | None) -> Tensor:
        if padding is None:
            x = F.pad(x, outside)
        if flipped:
            w = w.flip(flipped)
        y = convolve(x, w, bias, *window)
        if y.requires_grad:
            return activate(y if residual is None else y + residual, activation)
        if residual is not None:
            y.add_(residual)
        activate_(y, activation)
        return y.as_strided_(shape, in_planes) if is_open and y.is_contiguous() else y

    return forward


def _backward_data(problem: ConvProblem) -> Callable[..., Tensor]:
    def backward(dy: Tensor, w: Tensor, _bias: Any, _residual: Any) -> Tensor:
        dx = gradients(problem, dy, _unread(problem.x, dy), w, (True, False, False))[0]
        assert dx is not None
        return dx

    return backward


def _backward_weight(problem: ConvProblem) -> Callable[..., Tensor]:
    def backward(x: Tensor, dy: Tensor, _bias: Any, _residual: Any) -> Tensor:
        dw = gradients(problem, dy, x, _unread(problem.w, dy), (False, True, False))[1]
        assert dw is not None
        return dw

    return backward


def gradients(problem: ConvProblem, dy: Tensor, x: Tensor, w: Tensor, needs: tuple[bool, bool, bool]) -> Gradients:
    """PyTorch's own dx, dw and db, each if it is needed. They can be differentiated again."""
    padding, filter_dims = problem.symmetric_padding, tuple(range(2, problem.rank + 2))
    if problem.flip:
        w = w.flip(filter_dims)
    if padding is None:
        x = F.pad(x, [side for pair in reversed(problem.padding) for side in pair])
    if needs[1] and dy.device.type == "cpu" and spoils_memory(problem):
        x, w = _in_planes(x), _in_planes(w)
    dx, dw, db = _backward(
        dy, x, w, [problem.k] if needs[2] else None,
        problem.stride, padding or (0,) * problem.rank, problem.dilation, False, (0,) * problem.rank, problem.groups,
        needs,
    )  # fmt: skip
    if padding is None and dx is not None:
        for dim, ((lo, _), size) in enumerate(zip(problem.padding, problem.x.shape[2:], strict=True), 2):
            dx = dx.narrow(dim, lo, size)
        dx = dx.clone()  # dense again, as PyTorch's own results are
    return dx, dw.flip(filter_dims) if problem.flip and dw is not None else dw, db


def spoils_memory(problem: ConvProblem) -> bool:
    """Whether the weight gradient with channels last can crash the process on a CPU. PyTorch 2.13 calls oneDNN 3.12,
    which then writes outside its buffers. Observed with 2 to 7 channels, of which AVX2 computes 8 at a time."""
    return (
        max(problem.stride) > 1 and problem.rank == 2 and problem.groups == 1 and 1 < problem.c < 16
        and set(problem.w.shape[2:]) == {1} and problem.dtype is DType.FP32
    )  # fmt: skip


def _in_planes(tensor: Tensor) -> Tensor:
    """``tensor`` with the strides of NCHW. A weight with one tap may have others and still count as contiguous."""
    same = tensor.stride() == dense_strides(tuple(tensor.shape))
    return tensor if same else tensor.clone(memory_format=torch.contiguous_format)


def _unread(spec: TensorSpec, dy: Tensor) -> Tensor:
    """A placeholder for an operand of which only shape and layout matter."""
    return torch.empty_strided(spec.shape, spec.strides, dtype=dy.dtype, device=dy.device)
