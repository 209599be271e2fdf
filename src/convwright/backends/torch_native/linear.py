"""``F.linear``, the baseline, and the fused calls of the libraries that PyTorch brings."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from convwright import flags, torch_api
from convwright.backends.torch_native.onednn import ATTRIBUTE, why_no_onednn
from convwright.backends.torch_native.whole import torch_version, why_not_asked
from convwright.core.binding import Bound, RolePlan
from convwright.core.candidate import Candidate, Config, Offer, Refusal, Source
from convwright.core.device import DeviceFacts
from convwright.core.dtype import Arithmetic, DType, native_arithmetic
from convwright.core.epilogue import Activation
from convwright.core.kinds.linear import LinearProblem
from convwright.core.policy import Policy
from convwright.tensors import activate_, laid_

_FUSED, _ONEDNN = "addmm-activation", "onednn"
_ops: Any = torch.ops
_Compute = Callable[[Tensor, Tensor, Tensor | None, Tensor | None], Tensor]


class TorchLinear:
    """``torch/default`` calls ``F.linear``, then applies residual and activation in place. For fp32 on a GPU it is
    listed twice, with PyTorch's TF32 flag for matrix products on and off."""

    name = "torch"

    def fingerprint(self, device: DeviceFacts) -> str:
        return torch_version() + (", no onednn" if device.kind == "cpu" and not flags.onednn_enabled() else "")

    def fingerprints(self, device: DeviceFacts) -> frozenset[str]:
        """All possible fingerprints with this PyTorch."""
        return frozenset({torch_version(), f"{torch_version()}, no onednn"})

    def candidates(self, problem: LinearProblem, device: DeviceFacts, policy: Policy) -> Iterator[Offer]:
        reason = why_not_asked(device)
        if reason is not None:
            yield from (Refusal(f"torch/{name}", reason) for name in ("default", _FUSED, _ONEDNN))
            return
        switched = problem.dtype is DType.FP32 and device.kind == "cuda"
        for config in ((("tf32", "on"),), (("tf32", "off"),)) if switched else ((),):
            yield _candidate(problem, "default", device, config)
        for name, objection in ((_FUSED, _why_not_fused(problem, device)), (_ONEDNN, _why_not_onednn(problem, device))):
            yield Refusal(f"torch/{name}", objection) if objection else _candidate(problem, name, device)

    def build(self, candidate: Candidate, device: DeviceFacts) -> TorchLinearPlan:
        return (OneDnnLinearPlan if candidate.algorithm == _ONEDNN else TorchLinearPlan)(candidate)


def _candidate(problem: LinearProblem, name: str, device: DeviceFacts, config: Config = ()) -> Candidate:
    tf32 = ("tf32", "on") in config or (name == _FUSED and flags.matmul_tf32_allowed())
    return Candidate(
        problem=problem,
        backend="torch",
        algorithm=name,
        config=config,
        arithmetic=native_arithmetic(problem.dtype, tf32=tf32),
        workspace_bytes=0,  # PyTorch's allocator provides the libraries' workspace
        deterministic=True if device.kind == "cpu" or flags.deterministic() else None,
        source=Source.RULE,
    )


def _why_not_fused(problem: LinearProblem, device: DeviceFacts) -> str | None:
    epilogue = problem.epilogue
    if device.kind != "cuda":
        return f"fuses only on a GPU, got {device.name} ({device.kind})"
    if problem.dtype is DType.FP32:
        return "fuses only fp16 and bf16, since the TF32 flag would change fp32"
    if not epilogue.bias or epilogue.residual or epilogue.activation is not Activation.RELU:
        return f"fuses only bias+relu, got {epilogue}"
    return None


def _why_not_onednn(problem: LinearProblem, device: DeviceFacts) -> str | None:
    if (reason := why_no_onednn(problem.dtype, device)) is not None:
        return reason
    if not problem.rows:
        return "needs at least one row, got 0"
    return None


class TorchLinearPlan(RolePlan):
    """The output has the problem's layout. If PyTorch returns another layout, it is copied, and the copy is timed."""

    writes_out = False

    def __init__(self, candidate: Candidate) -> None:
        self.candidate = candidate
        self._problem: LinearProblem = candidate.problem
        compute: _Compute = _fused if candidate.algorithm == _FUSED else self._own
        tf32 = candidate.arithmetic is Arithmetic.TF32
        self._compute = flags.with_matmul_tf32(compute, tf32) if candidate.config else compute

    def bind(self, operands: Mapping[str, Tensor], workspace: Tensor | None = None) -> Bound:
        return lambda: self.compute(operands)

    def compute(self, operands: Mapping[str, Tensor], workspace: Tensor | None = None) -> Tensor:
        bias, residual, out = (operands.get(role) for role in ("bias", "residual", "y"))
        y = self._compute(operands["x"], operands["w"], bias, residual)
        return laid_(y, self._problem.y) if out is None else out.copy_(y)

    def _own(self, x: Tensor, w: Tensor, bias: Tensor | None, residual: Tensor | None) -> Tensor:
        y = F.linear(x, w, bias)
        if residual is not None:
            y.add_(residual)
        return activate_(y, self._problem.epilogue.activation)


def _fused(x: Tensor, w: Tensor, bias: Tensor | None, residual: Tensor | None) -> Tensor:
    y: Tensor = torch_api.aten_operator("addmm_activation")(bias, x, w.t(), use_gelu=False)
    return y


class OneDnnLinearPlan(TorchLinearPlan):
    """oneDNN with a packed weight and a fused activation, except ReLU, since oneDNN's ReLU turns NaN into 0."""

    def __init__(self, candidate: Candidate) -> None:
        super().__init__(candidate)
        activation = self._problem.epilogue.activation
        fuses = activation is not Activation.RELU and not self._problem.epilogue.residual
        self._fused = ATTRIBUTE[activation if fuses else Activation.NONE]
        self._forward = Activation.NONE if fuses else activation
        self._compute = self._packed

    def prepare(self, weight: Tensor) -> Tensor:
        packed: Tensor = torch_api.onednn_operator("reorder_linear_weight")(weight.detach(), self._problem.rows)
        return packed

    def _packed(self, x: Tensor, w: Tensor, bias: Tensor | None, residual: Tensor | None) -> Tensor:
        y: Tensor = torch_api.onednn_operator("linear_pointwise").default(x, w, bias, self._fused, [None], "none")
        if residual is not None:
            y.add_(residual)
        return activate_(y, self._forward)
