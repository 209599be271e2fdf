"""All calls that the first look does not settle: new ones, foreign tensors, autocast, a residual or an output given."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from convwright.errors import BadInput
from convwright.ops.autocast import autocasting, cast, lowering, uncast
from convwright.ops.call import Call
from convwright.ops.composite import check_tensors, composite, foreign, refuse_algorithm
from convwright.ops.decide import decide
from convwright.ops.form import Form, Request
from convwright.ops.meetings import meetings
from convwright.ops.regions import check_apart, count_write
from convwright.ops.slots import Run, Slot
from convwright.ops.tracing import traced
from convwright.tensors import core_dtype

_C: Any = torch._C


def beyond(
    form: Form,
    x: Tensor,
    w: Tensor,
    bias: Tensor | None,
    request: Request,
    residual: Tensor | None = None,
    out: Tensor | None = None,
) -> Tensor:
    """Compute a call, and remember what was decided for the next one like it."""
    check_tensors(form, input=x, weight=w)
    core_dtype(x.dtype)  # refuses complex and integer tensors
    call = Call(form, x, w, bias, residual, out, request)
    if torch.compiler.is_dynamo_compiling():
        y = traced(call)
        return y if out is None else out.copy_(y)
    if foreign(*call.operands):
        refuse_algorithm(request.algorithm, request.policy)
        return composite(call)
    if autocasting(x):
        return _under_autocast(call)
    if out is not None:
        check_apart(out, input=x, weight=w, bias=bias, residual=residual)
    slot = form.slots.matching(w, request, call.tensors, call.extra)
    if slot is None and not meetings.worth_deciding(call):
        return _undecided(call)
    run = slot.run if slot is not None else _decided(call)
    if run is None:
        return call.torchs_own()
    y = run(*call.operands)
    if out is not None:
        count_write(out)
    return y


def _decided(call: Call) -> Run | None:
    """What runs a call that no slot stands for, and will run the next one like it."""
    _refuse_gradient_of_out(call)
    run = decide(call)
    # What serves inside a capture was not chosen.
    if not (call.x.is_cuda and _C._cuda_isCurrentStreamCapturing()):
        call.form.slots.remember(call.w, call.tensors, Slot(call.tensors, call.request, run, call.extra))
    return run


def _undecided(call: Call) -> Tensor:
    """PyTorch's own functions, for this once."""
    _refuse_gradient_of_out(call)
    try:
        return composite(call)
    except (RuntimeError, TypeError, ValueError):
        call.problem()  # says it in a sentence where the input is bad
        raise


def _refuse_gradient_of_out(call: Call) -> None:
    if call.out is not None and torch.is_grad_enabled() and any(t.requires_grad for t in call.tensors):
        raise BadInput(
            "`out` needs torch.no_grad(), since a gradient is wanted here; conv2d_into writes into a slice with one"
        )


def _under_autocast(call: Call) -> Tensor:
    """The call on cast operands, and a slot for the next one: a cast weight is new at each call and finds none."""
    form, request = call.form, call.request
    x, w, bias = cast(call.x, call.w, call.bias)
    y = uncast(x, lambda: beyond(form, x, w, bias, request, call.residual, call.out))
    if call.extra:
        return y
    # The slot's check tells autocast on from off, and that of the call above was made with it off.
    lowered = tuple(tensor for tensor in (x, w, bias) if tensor is not None)
    found = uncast(x, lambda: form.slots.matching(w, request, lowered, None))
    if found is not None:
        run = None if found.run is None else lowering(found.run)
        if w is not call.w:
            form.slots.drop(w)
        form.slots.remember(call.w, call.tensors, Slot(call.tensors, request, run))
    return y
