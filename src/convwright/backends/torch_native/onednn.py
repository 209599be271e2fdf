"""oneDNN as PyTorch ships it for CPUs, with a packed weight and a fused epilogue, which ``F.conv2d`` does not use.

``F.conv2d`` passes the weight unpacked at each call. Packing once lets oneDNN choose the layout that its kernel needs.
Fusing an activation is a separate candidate, since oneDNN's ReLU turns NaN into 0, and PyTorch's keeps NaN.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from convwright import flags, torch_api
from convwright.backends.torch_native.onednn_faults import fault
from convwright.core.candidate import Candidate, Offer, Refusal, Source
from convwright.core.device import DeviceFacts
from convwright.core.direction import Direction
from convwright.core.dtype import DType, native_arithmetic
from convwright.core.epilogue import Activation
from convwright.core.problem import ConvProblem
from convwright.tensors import activate_, laid_

NAME, FUSED = "onednn", "onednn-fused"
_mkldnn: Any = torch.backends.mkldnn
ATTRIBUTE = {
    Activation.NONE: "none",
    Activation.RELU: "relu",
    Activation.SILU: "swish",
    Activation.GELU: "gelu",
    Activation.HARDSWISH: "hardswish",
}
_HALF_SUPPORT = {DType.BF16: "is_mkldnn_bf16_supported", DType.FP16: "is_mkldnn_fp16_supported"}


def offers(problem: ConvProblem, device: DeviceFacts) -> Iterator[Offer]:
    """``torch/onednn`` and ``torch/onednn-fused``; or why they cannot compute the problem."""
    general = _refusal_here(device) or refusal_reason(problem)
    for name in (NAME, FUSED):
        reason = general or (_refusal_to_fuse(problem) if name == FUSED else None)
        yield Refusal(f"torch/{name}", reason) if reason else _candidate(problem, name)


def why_no_onednn(dtype: DType, device: DeviceFacts) -> str | None:
    """Why oneDNN cannot compute anything in ``dtype`` on ``device``; None if it can."""
    return _refusal_here(device) or _refusal_of(dtype)


def _refusal_of(dtype: DType) -> str | None:
    if dtype is DType.FP64:
        return "computes only fp32, fp16 and bf16, got fp64"
    if dtype in _HALF_SUPPORT and not torch_api.onednn_operator(_HALF_SUPPORT[dtype])():
        return f"this CPU lacks the instructions that oneDNN needs for {dtype}"
    return None


def _refusal_here(device: DeviceFacts) -> str | None:
    if device.kind != "cpu":
        return f"computes only on a CPU, got {device.name} ({device.kind})"
    if not (_mkldnn.is_available() and flags.onednn_enabled()):
        return "needs oneDNN, which is absent or switched off in torch.backends.mkldnn"
    return None


def _refusal_to_fuse(problem: ConvProblem) -> str | None:
    epilogue = problem.epilogue
    if epilogue.activation is Activation.NONE:
        return "needs an activation to fuse, got none"
    if epilogue.residual and epilogue.activation is not Activation.RELU:
        return f"fuses a residual only with relu, got {epilogue.activation}"
    if epilogue.residual and problem.groups > 1 and problem.dtype in _HALF_SUPPORT:
        # PyTorch would then add the residual itself, with a function for fp32 only, and raise.
        return f"fuses a residual in {problem.dtype} only without groups, got {problem.groups} groups"
    return None


def _candidate(problem: ConvProblem, name: str) -> Candidate:
    return Candidate(
        problem=problem,
        backend="torch",
        algorithm=name,
        config=(),
        arithmetic=native_arithmetic(problem.dtype, tf32=False),
        workspace_bytes=0,  # oneDNN allocates its own
        deterministic=True,
        source=Source.RULE,
    )


def refusal_reason(problem: ConvProblem) -> str | None:
    """Why oneDNN cannot compute ``problem``; None if it can."""
    if problem.direction is not Direction.FORWARD:
        return f"computes only the forward direction, got {problem.direction}"
    if problem.rank == 1:
        return "needs 2 or 3 spatial dimensions, got 1"
    if problem.symmetric_padding is None:
        return f"needs equal padding on both sides, got {problem.padding}"
    if (reason := _refusal_of(problem.dtype)) is not None:
        return reason
    sizes = zip(problem.y.shape[2:], problem.stride, problem.w.shape[2:], strict=True)
    strided = [stride for y, stride, taps in sizes if y == 1 < min(stride, taps)]
    if problem.c == problem.groups == 1 and strided:
        # Observed for packed weights in PyTorch 2.13 with oneDNN 3.12: results change from call to call.
        return f"computes one channel wrong if an output of size 1 has stride {strided[0]}"
    return fault(problem)


class OneDnnPlan:
    """Runs oneDNN with a packed weight. Its output is channels last; another layout costs a copy."""

    workspace_bytes = 0
    writes_out = False

    def __init__(self, candidate: Candidate) -> None:
        self.candidate = candidate
        problem = self._problem = candidate.problem
        assert problem.symmetric_padding is not None
        self._window = (problem.symmetric_padding, problem.stride, problem.dilation, problem.groups)
        fused = candidate.algorithm == FUSED
        self._forward = Activation.NONE if fused else problem.epilogue.activation
        self._fused = ATTRIBUTE[problem.epilogue.activation if fused else Activation.NONE]
        self._reorder = getattr(torch_api.nn_functions, f"mkldnn_reorder_conv{problem.rank}d_weight")
        self._convolve = torch_api.onednn_operator("convolution_pointwise")

    def prepare(self, weight: Tensor) -> Tensor:
        if self._problem.flip:
            weight = weight.flip([*range(2, weight.dim())])
        packed: Tensor = self._reorder(weight.detach().to_mkldnn(), *self._window, self._problem.x.shape)
        return packed

    def __call__(
        self,
        first: Tensor,
        second: Tensor,
        bias: Tensor | None = None,
        residual: Tensor | None = None,
        out: Tensor | None = None,
        workspace: Tensor | None = None,
    ) -> Tensor:
        convolve = self._convolve
        if residual is not None:
            fused = None if self._fused == "none" else self._fused
            y: Tensor = convolve.binary(first, residual, second, bias, *self._window, "add", 1.0, fused, [], "none")
        else:
            y = convolve.default(first, second, bias, *self._window, self._fused, [], "none")
        activate_(y, self._forward)
        return laid_(y, self._problem.y) if out is None else out.copy_(y)
