"""Runners for what comes behind a convolution and is not fused into it."""

from __future__ import annotations

import torch
from torch import Tensor

from convwright.backends.torch_native.own import TorchPlan, torch_candidate
from convwright.core.epilogue import activation_named
from convwright.ops.call import Call
from convwright.ops.composite import composite
from convwright.ops.runner import Runner
from convwright.tensors import activate, activate_


def behind(run: Runner, call: Call) -> Runner:
    """``run``, which convolves only, and then residual, bias and activation, added in place."""
    activation, shape = activation_named(call.request.activation), (-1, *[1] * call.form.rank)

    def runs(
        x: Tensor,
        w: Tensor,
        bias: Tensor | None = None,
        residual: Tensor | None = None,
        out: Tensor | None = None,
    ) -> Tensor:
        y = run(x, w, None, None, out)
        if residual is not None:
            y.add_(residual)
        if bias is not None:
            y.add_(bias.view(shape))
        return activate_(y, activation)

    return runs


def activated(call: Call) -> Runner:
    """The same call without its activation, and the activation as PyTorch differentiates it."""
    from convwright.ops.beyond import beyond

    form, plain = call.form, call.request._replace(activation=None)
    activation = activation_named(call.request.activation)

    def runs(
        x: Tensor, w: Tensor, bias: Tensor | None = None, residual: Tensor | None = None, _out: None = None
    ) -> Tensor:
        return activate(beyond(form, x, w, bias, plain, residual), activation)

    return runs


def torchs_own(call: Call) -> Runner:
    """PyTorch's own functions for a call with more to it than ``F.conv2d`` takes."""
    form, request = call.form, call.request
    if not form.transposed and not (torch.is_grad_enabled() and any(t.requires_grad for t in call.tensors)):
        return TorchPlan(torch_candidate(call.problem()))

    def runs(
        x: Tensor,
        w: Tensor,
        bias: Tensor | None = None,
        residual: Tensor | None = None,
        out: Tensor | None = None,
    ) -> Tensor:
        return composite(Call(form, x, w, bias, residual, out, request))

    return runs
