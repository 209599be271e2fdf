"""PyTorch's cuDNN operators, called directly: the layers above them cost the host as much as a short kernel runs.

``F.conv2d`` calls two operators and chooses a backend before it calls ``torch.cudnn_convolution``. This backend calls
it at once, and also the operators that fuse bias, residual and ReLU, which ``F.conv2d`` never calls.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch
from torch import Tensor

from convwright import flags
from convwright.backends.torch_native.own import TorchPlan
from convwright.core.candidate import Candidate, Config, Offer, Refusal, Source
from convwright.core.device import DeviceFacts
from convwright.core.direction import Direction
from convwright.core.dtype import Arithmetic, DType, native_arithmetic
from convwright.core.epilogue import Activation, Epilogue
from convwright.core.problem import ConvProblem
from convwright.core.tensor_spec import Layout

NAME = "cudnn"
_torch: Any = torch
_DENSE = (Layout.NCHW, Layout.NHWC)
# cuDNN loads its depthwise kernels for 16-bit types at the first call of a process: 1.6 s on an H100, 1.9 s on an H200.
# PyTorch's own call may not use them.
_LINKS_US = 2e6
_FUSED = (Epilogue(bias=True, activation=Activation.RELU), Epilogue(True, True, Activation.RELU))


def offers(problem: ConvProblem, device: DeviceFacts) -> Iterator[Offer]:
    """``torch/cudnn``, for fp32 with TF32 and without; or why these operators cannot compute the problem."""
    if device.kind != "cuda" or not _torch.backends.cudnn.is_available():
        return
    reason = flags.against_cudnn() or refusal_reason(problem)
    if reason is not None:
        yield Refusal(f"torch/{NAME}", reason)
        return
    configs: tuple[Config, ...] = ((("tf32", "on"),), (("tf32", "off"),)) if problem.dtype is DType.FP32 else ((),)
    for config in configs:
        yield Candidate(
            problem=problem,
            backend="torch",
            algorithm=NAME,
            config=config,
            arithmetic=native_arithmetic(problem.dtype, tf32=("tf32", "on") in config),
            workspace_bytes=0,  # PyTorch allocates it, within its own limit
            deterministic=True if flags.deterministic() else None,
            source=Source.RULE,
            saves_products=True,
            links_us=_LINKS_US if _is_depthwise_in_halves(problem) else 0.0,
        )


def _is_depthwise_in_halves(problem: ConvProblem) -> bool:
    return problem.dtype in (DType.FP16, DType.BF16) and problem.groups == problem.c > 1


def refusal_reason(problem: ConvProblem) -> str | None:
    """Why PyTorch's cuDNN operators cannot compute ``problem``; None if they can."""
    if problem.direction is not Direction.FORWARD:
        return f"computes only the forward direction, got {problem.direction}"
    if problem.rank == 1:
        return "needs 2 or 3 spatial dimensions, got 1"
    if problem.symmetric_padding is None:
        return f"needs equal padding on both sides, got {problem.padding}"
    if problem.flip:
        return "computes only cross-correlations, got flip=1"
    if problem.epilogue and problem.epilogue not in _FUSED:
        return f"fuses only {' or '.join(map(str, _FUSED))}, got {problem.epilogue}"
    if problem.epilogue and problem.dtype is DType.FP64:
        return "fuses only fp32, fp16 and bf16, got fp64"
    specs = (problem.x, problem.w, problem.y)
    if not any(all(spec.strides == spec.dense(layout).strides for spec in specs) for layout in _DENSE):
        return f"needs all operands dense in one layout, got {', '.join(spec.layout for spec in specs)}"
    return None


def plan(candidate: Candidate) -> TorchPlan:
    """One of PyTorch's cuDNN operators, ready to run."""
    if not candidate.problem.epilogue:
        return TorchPlan(candidate, bare=_plain(candidate))
    problem, tf32 = candidate.problem, candidate.arithmetic is Arithmetic.TF32
    window = (problem.stride, problem.symmetric_padding, problem.dilation, problem.groups)
    fused = partial(_with_residual if problem.epilogue.residual else _with_relu, window)
    return TorchPlan(candidate, flags.with_tf32(fused, tf32) if candidate.config else fused)


def _plain(candidate: Candidate) -> Callable[..., Tensor]:
    problem, tf32 = candidate.problem, candidate.arithmetic is Arithmetic.TF32
    stride, padding, dilation, groups = problem.stride, problem.symmetric_padding, problem.dilation, problem.groups
    convolution, deterministic = _torch.cudnn_convolution, candidate.deterministic is True

    def convolve(x: Tensor, w: Tensor, _bias: None = None, _residual: None = None, out: Tensor | None = None) -> Tensor:
        y: Tensor = convolution(x, w, padding, stride, dilation, groups, False, deterministic, tf32)
        return y if out is None else out.copy_(y)

    return convolve


def _with_relu(window: tuple[Any, ...], x: Tensor, w: Tensor, bias: Tensor, _residual: None) -> Tensor:
    y: Tensor = _torch.cudnn_convolution_relu(x, w, bias, *window)
    return y


def _with_residual(window: tuple[Any, ...], x: Tensor, w: Tensor, bias: Tensor, residual: Tensor) -> Tensor:
    y: Tensor = _torch.cudnn_convolution_add_relu(x, w, residual, 1.0, bias, *window)
    return y
