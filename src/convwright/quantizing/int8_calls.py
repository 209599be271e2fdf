"""Calls of a convolution in int8: the input is rounded, and a candidate for the rest is chosen as for any call."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from convwright import flags
from convwright.api.plans import BoundPlan
from convwright.core.device import DeviceFacts
from convwright.core.dtype import DType
from convwright.core.epilogue import Activation, Epilogue
from convwright.core.policy import Policy, Weights
from convwright.core.problem import ConvProblem
from convwright.core.tensor_spec import TensorSpec, dense_strides
from convwright.eager.asking.describe import problem_of
from convwright.eager.calls.call import CONV2D
from convwright.eager.decision import choices_for
from convwright.eager.running.oom_fallback import short_of
from convwright.eager.running.packed_once import PackedOnce
from convwright.eager.running.workspace import workspace
from convwright.errors import Refused
from convwright.measuring.hardware.machine import device_facts
from convwright.quantizing.int8_numbers import rounded
from convwright.shortage import SHORTAGES, is_shortage
from convwright.tensors import core_dtype, empty, torch_dtype
from convwright.tuning.session import Choice

# What a layer keeps made ready, with its weight packed for each.
_MOST_KINDS = 8
OUTPUTS = tuple(torch_dtype(dtype) for dtype in DType.INT8.outputs if dtype is not DType.INT8)


@dataclass(frozen=True, slots=True, eq=False)
class Int8Operands:
    """All operands of a convolution except its input: the weight in int8, a scale for each output channel, a bias in
    fp32, and the scale of the input."""

    w: Tensor
    scale: Tensor
    input_scale: Tensor
    bias: Tensor | None


@dataclass(frozen=True, slots=True, eq=False)
class _Ready:
    """A choice that is bound to one kind of call."""

    choice: Choice
    plan: BoundPlan
    pack: PackedOnce
    scratch: Callable[[], Tensor] | None

    def __call__(self, x: Tensor, operands: Int8Operands) -> Tensor:
        plan = self.plan
        whole = empty(plan.problem.x, x.device).copy_(rounded(x, operands.input_scale))
        try:
            packed, scratch = self.pack(operands.w), None if self.scratch is None else self.scratch()
            return plan(whole, packed, operands.bias, workspace=scratch, scale=operands.scale)
        except SHORTAGES as error:
            if not is_shortage(error):
                raise
            raise short_of(self.choice.candidate, self.choice.device, plan.workspace_bytes, error) from error


class Int8Calls:
    """Computes ``activation(scale · (x in int8 ∗ w) + bias)``, and keeps the choices for the latest kinds of call.

    The output has the dtype and the layout that PyTorch's own convolution would give for ``x`` and a weight of its
    dtype.
    """

    def __init__(self, window: dict[str, Any], activation: Activation, policy: Policy | None) -> None:
        self.window, self.activation, self.policy = window, activation, policy
        self._constant = replace(policy or Policy(), weights=Weights.CONSTANT)
        self._ready: dict[tuple[object, ...], _Ready] = {}

    def __call__(self, x: Tensor, operands: Int8Operands, dtype: torch.dtype) -> Tensor:
        """The result in ``dtype``, one of ``OUTPUTS``."""
        if x.numel() == 0:
            return empty(self._problem(x, operands, dtype).y, x.device)
        with torch.cuda.device(x.device) if x.is_cuda else nullcontext():
            return self._ready_for(x, operands, dtype)(x, operands).to(dtype)

    def choice(self, x: Tensor, operands: Int8Operands, dtype: torch.dtype) -> Choice:
        """The choice for a call like this."""
        return self._ready_for(x, operands, dtype).choice

    def _ready_for(self, x: Tensor, operands: Int8Operands, dtype: torch.dtype) -> _Ready:
        news = CONV2D.slots.forgotten  # counts whenever choices are to be made anew
        key = (x.shape, x.stride(), operands.w.stride(), dtype, x.device, flags.state(), news)
        ready = self._ready.pop(key, None) or self._made(x, operands, dtype)
        self._ready[key] = ready  # last: the first of the others is dropped
        while len(self._ready) > _MOST_KINDS:
            self._ready.pop(next(iter(self._ready)), None)
        return ready

    def _made(self, x: Tensor, operands: Int8Operands, dtype: torch.dtype) -> _Ready:
        device, problem = device_facts(x.device), self._problem(x, operands, dtype)
        choice = self._chosen(problem, device)
        plan = BoundPlan(choice.plan(), device)
        needed = plan.workspace_bytes
        return _Ready(choice, plan, PackedOnce(plan.prepare), workspace(needed, x.device) if needed else None)

    def _chosen(self, problem: ConvProblem, device: DeviceFacts) -> Choice:
        """For the output as it is wanted, or where nothing stores that, for one in fp32, of which it is made."""
        try:
            return self._choose(problem, device)
        except Refused:
            if problem.y.dtype is DType.FP32:
                raise
        return self._choose(replace(problem, y=replace(problem.y, dtype=DType.FP32)), device)

    def _choose(self, problem: ConvProblem, device: DeviceFacts) -> Choice:
        return choices_for(problem, device, self._constant, None).captured

    def _problem(self, x: Tensor, operands: Int8Operands, dtype: torch.dtype) -> ConvProblem:
        bias = None if operands.bias is None else torch.empty_like(operands.bias, dtype=dtype)
        w = torch.empty_like(operands.w, dtype=dtype)
        like = torch.empty_strided(x.shape, x.stride(), dtype=dtype, device=x.device)
        own = problem_of(like, w, bias, **self.window)
        layout = own.y.layout
        return replace(
            own,
            x=TensorSpec(own.x.shape, DType.INT8, dense_strides(own.x.shape, layout)),
            w=TensorSpec(own.w.shape, DType.INT8, dense_strides(own.w.shape, layout)),
            y=TensorSpec(own.y.shape, core_dtype(dtype), dense_strides(own.y.shape, layout)),
            epilogue=Epilogue(bias=bias is not None, activation=self.activation, scale=True),
        )
