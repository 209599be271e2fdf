"""Runners for an epilogue that is not fused into its convolution."""

from __future__ import annotations

from torch import Tensor

from convwright.backends.torch_native.own import TorchPlan, torch_candidate
from convwright.core.epilogue import activation_named
from convwright.eager.asking.autocast import autocasting
from convwright.eager.calls.call import Call, per_call
from convwright.eager.running.composite import composite
from convwright.eager.running.runner import Runner
from convwright.tensors import activate, activate_


def unfused_epilogue(run: Runner, call: Call) -> Runner:
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


def activated(run: Runner | None, call: Call) -> Runner:
    """``run``, which does all but the activation, and the activation as PyTorch differentiates it.

    None stands for PyTorch's own function, as it does in a slot.
    """
    own, window, activation = call.form.own, call.form.window(call.request), activation_named(call.request.activation)

    def runs(
        x: Tensor, w: Tensor, bias: Tensor | None = None, residual: Tensor | None = None, _out: None = None
    ) -> Tensor:
        y = own(x, w, bias, *window) if run is None else run(x, w, bias, residual)
        return activate(y, activation)

    return runs


def torchs_functions(call: Call) -> Runner:
    """PyTorch's own functions for a call with more to it than ``F.conv2d`` takes."""
    form, request = call.form, call.request
    if not (form.transposed or call.trains or autocasting(call.x)):
        return TorchPlan(torch_candidate(call.problem())).bare
    return per_call(form, request, composite)
