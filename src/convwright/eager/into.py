"""A convolution that writes into a slice of a larger buffer, with a gradient."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from convwright.core.epilogue import activation_named
from convwright.core.policy import Policy
from convwright.core.problem import IntOrTuple
from convwright.core.window import Padding
from convwright.eager.asking.ambient import AUTO, freely
from convwright.eager.asking.autocast import autocasting
from convwright.eager.calls.call import CONV2D, Call, Request, as_batch
from convwright.eager.calls.posed import FROM_OUTPUT, with_dense_output
from convwright.eager.calls.slots import Slot
from convwright.eager.decision import training
from convwright.eager.gradients.autograd import Training, is_differentiated
from convwright.eager.gradients.regions import Kept, base_of, check_apart, log_write, version_of
from convwright.eager.running.bound import torchs_functions
from convwright.eager.running.pytorchs_own import (
    check_like,
    check_tensors,
    composite,
    foreign,
    foreign_dtype,
    refuse_algorithm,
)
from convwright.eager.scheduler import When, scheduler
from convwright.eager.slow_path import slow_path
from convwright.errors import BadInput
from convwright.tensors import NARROW

_aten: Any = torch.ops.aten


def conv2d_into(
    out: Tensor,
    input: Tensor,  # noqa: A002  the names are those of torch.nn.functional.conv2d
    weight: Tensor,
    bias: Tensor | None = None,
    stride: IntOrTuple = 1,
    padding: Padding = 0,
    dilation: IntOrTuple = 1,
    groups: int = 1,
    *,
    activation: str | None = None,
    residual: Tensor | None = None,
    algorithm: str | None = None,
    policy: Policy | None = None,
) -> Tensor:
    """Write the convolution to ``out`` and return it. Autograd treats this as an in-place operation.

    ``out`` and ``input`` may be different slices of one buffer, as in densely connected networks. If a later write
    overwrites a slice that the backward pass needs, the backward pass raises an error. A second derivative is possible
    only if the two are not in one buffer.

    >>> import torch
    >>> buffer, weight = torch.ones(1, 3, 4, 4), torch.ones(1, 2, 1, 1, requires_grad=True)
    >>> conv2d_into(buffer[:, 2:], buffer[:, :2], weight).sum().backward()
    >>> buffer[0, :, 0, 0].tolist(), weight.grad.flatten().tolist()
    ([1.0, 1.0, 2.0], [16.0, 16.0])
    """
    if not isinstance(out, Tensor):
        raise BadInput(f"`out` must be a tensor, got {type(out).__name__}")
    request = Request(bias is None, stride, padding, dilation, groups, activation, algorithm, policy)
    if not torch.is_grad_enabled() and not torch.compiler.is_compiling():
        before = version_of(out)
        slow_path(Call(CONV2D, input, weight, bias, residual, out, request))
        log_write(out if input.dim() == weight.dim() else out.unsqueeze(0), before)
        return out
    check_tensors(CONV2D, input=input, weight=weight)
    request = request.kept()
    call = Call(CONV2D, input, weight, bias, residual, out, request)
    if (why := _why_copied(call)) is not None:
        refuse_algorithm(CONV2D, request, why)
        return _copied(call)
    if algorithm == AUTO:
        with freely(CONV2D.direction):
            return _written(replace(call, request=request._replace(algorithm=None)))
    return _written(call)


def _why_copied(call: Call) -> str | None:
    """Why PyTorch's own functions must compute the result first; None if they need not."""
    if torch.compiler.is_compiling():
        return "it is being compiled"
    why = None if call.x.dtype in NARROW else foreign_dtype(call)  # narrow dtypes are refused later
    why = why or foreign(*call.operands)
    return why or ("autocast is on" if autocasting(call.x) else None)


def _written(call: Call) -> Tensor:
    """The result, written in place by the chosen candidates and logged."""
    x, w, bias, residual, out = call.operands
    assert out is not None
    if x.dim() == 3:
        _written(replace(call, x=x.unsqueeze(0), residual=as_batch(residual), out=out.unsqueeze(0)))
        return out
    check_apart(out, input=x, weight=w, bias=bias, residual=residual)
    before = version_of(out)
    if not call.trains:
        result = slow_path(call)
    elif (made := _training(call)) is not None:
        kept: list[Kept] = []
        result = _apply(out, x, w, bias, residual, made, kept)
        for each in kept:
            each.version = version_of(result)  # autograd counts the write only when the node is finished
    else:
        result = _copied(call)
    log_write(out, before)
    return result


def _copied(call: Call) -> Tensor:
    """The result of PyTorch's own functions, copied to its place."""
    assert call.out is not None
    # Autograd saves the convolution's input, which the copy may change.
    x = call.x.clone() if torch.is_grad_enabled() else call.x
    y = composite(replace(call, x=x, out=None))
    check_like(y, "out", call.out)
    return call.out.copy_(y)


def _training(call: Call) -> Training | None:
    """The three directions of this call; None if PyTorch serves it."""
    if activation_named(call.request.activation) not in FROM_OUTPUT:
        refuse_algorithm(
            call.form, call.request, f"the gradient of {call.request.activation} needs the value before the activation"
        )
        return None
    return training_into(call)


def training_into(call: Call) -> Training:
    """The three directions of a call whose gradient needs at most its output, as made ready at an earlier call."""
    slots, extra = call.form.slots, ("into", call.extra)
    slot = slots.matching(call.w, call.request, call.tensors, extra)
    if slot is not None and isinstance(slot.run, Training):
        return slot.run
    if scheduler.when(call) is not When.NOW:
        problem = call.problem()
        return Training(problem, with_dense_output(problem).output, call.request, torchs_functions(call))
    made = training(call)
    slots.remember(call.w, call.tensors, Slot(call.tensors, call.request, made, extra))
    return made


class Into(torch.autograd.Function):
    """The in-place node. The old contents of ``out`` do not affect the new ones."""

    @staticmethod
    def forward(
        ctx: Any,
        out: Tensor,
        x: Tensor,
        w: Tensor,
        bias: Tensor | None,
        residual: Tensor | None,
        training: Training,
        kept: list[Kept],
    ) -> Tensor:
        training.forward(x, w, bias, residual, out)
        ctx.mark_dirty(out)
        shares = base_of(x) is base_of(out)
        # PyTorch would refuse a saved slice of a buffer after a write to any of its slices.
        ctx.x = Kept(x) if shares else None
        ctx.y = Kept(out) if training.relu else None
        kept.extend(each for each in (ctx.x, ctx.y) if each is not None)
        ctx.save_for_backward(None if shares else x, w)
        ctx.training = training
        return out

    @staticmethod
    def backward(ctx: Any, dy: Tensor) -> tuple[Tensor | None, ...]:
        x, w = ctx.saved_tensors
        training: Training = ctx.training
        needs = ctx.needs_input_grad
        y = ctx.y.intact() if ctx.y else None
        if is_differentiated():  # only PyTorch's formulas support that
            if ctx.x:
                raise RuntimeError(
                    "conv2d_into has no second derivative if its input and its output are in one buffer: "
                    "give `out` a buffer of its own"
                )
            inner = dy if y is None else _aten.threshold_backward(dy, y, 0)
            made = training.torchs_gradients(inner, x, w, needs[1:4])
        else:
            inner = training.before_activation(dy, y)
            made = training.gradients(inner, ctx.x.intact() if ctx.x else x, w, needs[1:4])
        # Zero, not None: for a slice, None would drop the gradient of the whole buffer.
        return (torch.zeros_like(dy) if needs[0] else None, *made, inner if needs[4] else None, None, None)


_apply: Callable[..., Tensor] = Into.apply
