"""All calls that the first look does not settle: new ones, foreign tensors, autocast, a residual or an output given."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from convwright.core.dtype import IN_PYTORCH
from convwright.core.epilogue import Activation, activation_named
from convwright.errors import BadInput, NothingLeft, Refused
from convwright.ops.asking.ambient import AUTO, freely
from convwright.ops.asking.autocast import autocasting, cast, lowered_dtype, lowering, uncast
from convwright.ops.asking.request import Request
from convwright.ops.calls.call import Call, as_batch, per_call
from convwright.ops.calls.form import Form
from convwright.ops.calls.slots import Run, Slot
from convwright.ops.calls.varied import Varied
from convwright.ops.deciding.decide import decide, own_runner, when_open, wrapped
from convwright.ops.deciding.meetings import Verdict, meetings
from convwright.ops.gradients.regions import check_apart, count_write
from convwright.ops.proxies import is_proxy, noted
from convwright.ops.running.composite import (
    EMPTY,
    check_like,
    check_tensors,
    composite,
    foreign,
    is_plain,
    is_transformed,
    refuse_algorithm,
)
from convwright.ops.running.proving import Proving
from convwright.ops.tracing import traced
from convwright.tensors import NARROW, SERVED, activate
from convwright.uncompiled import uncompiled

_C: Any = torch._C
# What PyTorch's functions raise. A slot of them looks at no weight and bias; what is wrong is said behind the call.
FAILURES = (RuntimeError, TypeError, ValueError)
_PROMOTED = "autocast casts a convolution, but not its sum with a residual of another dtype"


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
    if torch.compiler.is_dynamo_compiling():
        if request.policy is not None:
            return _under_policy(form, x, w, bias, request, residual, out)
        call = _checked(Call(form, x, w, bias, residual, out, request))
        if (why := foreign_dtype(call)) is not None:
            return _pytorchs(call, why)
        _refuse_out_with_gradient(call)
        y = composite(replace(call, out=None)) if is_transformed() else traced(call)
        if out is None:
            return y
        check_like(y, "out", out)
        return out.copy_(y)
    plain = is_plain(x) and is_plain(w) and (bias is None or is_plain(bias))
    if plain and x.dim() == form.rank + 1 and w.dim() == form.rank + 2 and x.layout is torch.strided:
        if residual is None and out is None:
            return _image(form, x, w, bias, request)
        y = beyond(form, x.unsqueeze(0), w, bias, request, *map(as_batch, (residual, out)))
        return y.squeeze(0) if out is None else out
    if plain:
        # The second look: another weight of this shape, or another shape of this layer, may have been decided.
        operands: Any = (x, w, bias, residual, out)
        tensors = tuple([t for t in operands if t is not None])
        extra = None if residual is None and out is None else (residual is not None, out is not None)
        slot = form.slots.matching(w, request, tensors, extra)
        if slot is not None and out is not None:
            assert slot.run is not None  # PyTorch's own function takes no output
            check_apart(out, input=x, weight=w, bias=bias, residual=residual)
            return _written(slot.run, x, w, bias, residual, out)
        if slot is not None:
            return form.own(x, w, bias, *form.window(request)) if slot.run is None else slot.run(*operands[:4])
    if not plain and any(is_proxy(operand) for operand in (x, w, bias, residual, out)):
        return noted(form, x, w, bias, request, residual, out)
    if request.algorithm == AUTO:
        with freely(form.direction):
            return beyond(form, x, w, bias, request._replace(algorithm=None), residual, out)
    return _looked_at(Call(form, x, w, bias, residual, out, request.kept()))


def explain(
    form: Form, x: Tensor, w: Tensor, bias: Tensor | None, stride: Any, padding: Any, dilation: Any, groups: Any,
    output_padding: Any = 0,
) -> None:  # fmt: skip
    """Refuse in one sentence what PyTorch's own function has refused, where what it was given is wrong."""
    request = Request(bias is None, stride, padding, dilation, groups, output_padding=output_padding)
    call = _checked(Call(form, x, w, bias, None, None, request.kept()))
    _refuse(call if x.dim() == w.dim() else replace(call, x=x.unsqueeze(0)))


def _image(form: Form, x: Tensor, w: Tensor, bias: Tensor | None, request: Request) -> Tensor:
    """One image without a batch is a batch of one, but for PyTorch's own function, which takes it as it is."""
    slots, batch, rest = form.slots, x.unsqueeze(0), (w,) if bias is None else (w, bias)
    if slots.matching(w, request, (x, *rest), None) is not None:
        return form.own(x, w, bias, *form.window(request))
    slot = slots.matching(w, request, (batch, *rest), None)
    if slot is None:
        return beyond(form, batch, w, bias, request).squeeze(0)
    if slot.run is not None:
        return slot.run(batch, w, bias, None).squeeze(0)
    if slot.varied is None:
        slots.remember_image(w, (x, *rest), request)
    return form.own(x, w, bias, *form.window(request))


def _checked(call: Call) -> Call:
    check_tensors(call.form, input=call.x, weight=call.w, bias=call.bias, residual=call.residual, out=call.out)
    dtype = call.x.dtype
    if dtype in NARROW:
        raise BadInput(
            f"{call.form.name} computes what PyTorch computes, got {dtype}; `cw.plan` makes ready what computes that"
        )
    return call


def foreign_dtype(call: Call) -> str | None:
    """What is said of complex and whole numbers, which nothing but PyTorch's own functions computes here."""
    return (
        None if call.x.dtype in SERVED else f"convolutions are computed in {', '.join(IN_PYTORCH)}, got {call.x.dtype}"
    )


@uncompiled("a `policy=` is kept by a choice at the call: set PyTorch's flags, or compute outside of what is compiled")
def _under_policy(
    form: Form,
    x: Tensor,
    w: Tensor,
    bias: Tensor | None,
    request: Request,
    residual: Tensor | None,
    out: Tensor | None,
) -> Tensor:
    """``beyond`` outside of a graph, which knows of no permission, and whose gradients are PyTorch's own."""
    return beyond(form, x, w, bias, request, residual, out)


@uncompiled("what is chosen at a call is no part of a graph")
def _looked_at(call: Call) -> Tensor:
    """The long way, for a call that may never have been seen."""
    with torch._C.DisableTorchFunctionSubclass():  # some tensors take the functions of layers only
        _refuse_out_with_gradient(_checked(call))
        why = foreign_dtype(call) or foreign(*call.operands) or (_PROMOTED if _is_promoted(call) else None)
    if why is not None:
        return _pytorchs(call, why)
    try:
        if call.out is not None:
            return _into_out(call)
        verdict = meetings.judge(call)
        return _run(_decided(call), call) if verdict is Verdict.DECIDE else _undecided(call, verdict)
    except NothingLeft:
        return _composite(call)  # an empty tensor, or for some dtypes and devices an error


def _refuse_out_with_gradient(call: Call) -> None:
    if call.out is not None and call.trains:
        raise BadInput(
            "`out` needs torch.no_grad(), since a gradient is wanted here; conv2d_into writes into a slice with one"
        )


def _pytorchs(call: Call, why: str) -> Tensor:
    """PyTorch's own functions. A result without elements is nobody's work, whatever was asked for."""
    if why == EMPTY and (y := _composite(call)).numel() == 0:
        return y
    refuse_algorithm(call.form, call.request, why)
    try:
        return composite(call)
    except RuntimeError as error:  # what PyTorch has no kernel for is one of these, too
        if "not implemented for" not in str(error) or call.x.dtype in SERVED:
            raise
        raise BadInput(why) from error


def _into_out(call: Call) -> Tensor:
    x, w, bias, residual, out = call.operands
    assert out is not None
    check_apart(out, input=x, weight=w, bias=bias, residual=residual)
    verdict = meetings.judge(call)
    if verdict is not Verdict.DECIDE:
        return _undecided(call, verdict)
    run = _decided(call)
    assert run is not None  # PyTorch's own function takes no output
    return _written(run, x, w, bias, residual, out)


def _written(run: Run, x: Tensor, w: Tensor, bias: Tensor | None, residual: Tensor | None, out: Tensor) -> Tensor:
    y = run(x, w, bias, residual, out)
    count_write(out)
    return y


def _run(run: Run | None, call: Call) -> Tensor:
    return call.torchs_own() if run is None else run(*call.operands)


def _decided(call: Call) -> Run | None:
    """What runs a call that no slot stands for, and will run the next one like it."""
    forgotten = call.form.slots.forgotten
    run = _lowered(call) if autocasting(call.x) else decide(call)
    # What serves inside a capture was not chosen.
    if not (call.x.is_cuda and _C._cuda_isCurrentStreamCapturing()):
        slot, slots = Slot(call.tensors, call.request, run, call.extra), call.form.slots
        if slots.forgotten == forgotten:  # or else there were news, and the next call decides again
            slots.remember(call.w, call.tensors, slot)
        if run is not None:
            when_open(run, call, settled=lambda kept: slots.settle(slot, kept), earned=lambda: slots.drop(slot))
    return run


def _lowered(call: Call) -> Run | None:
    """The decision for the operands that autocast makes of these, behind casts like its own."""
    given = call.x, call.w, call.bias
    x, w, bias = cast(*given)
    run = uncast(x, lambda: decide(replace(call, x=x, w=w, bias=bias)))
    anew = per_call(call.form, call.request, _looked_at)
    if isinstance(run, Proving):
        return run.instead(lowering(run.ours, given, anew), own_runner(call))  # the casts are a part of it
    return None if run is None else wrapped(lowering(run, given, anew), run)


def _is_promoted(call: Call) -> bool:
    """Autocast lowers a convolution, not the sum with a residual of another dtype."""
    return call.residual is not None and autocasting(call.x) and call.residual.dtype is not lowered_dtype(call.x)


def _undecided(call: Call, verdict: Verdict) -> Tensor:
    """PyTorch's own functions, for this once, or for most calls of a layer that is fed ever new shapes."""
    if verdict is not Verdict.WAIT and call.extra is None:
        _loosen(call, any_weight=verdict is Verdict.FRESH)
    return _composite(call)


def _composite(call: Call) -> Tensor:
    """PyTorch's own functions, and one sentence about what is wrong with their input."""
    try:
        return composite(call)
    except BadInput:
        raise
    except FAILURES:
        _refuse(call)
        raise


def _refuse(call: Call) -> None:
    """One sentence about what is wrong with a call, if something is; what no candidate could serve may be right."""
    if not any(tensor.is_nested for tensor in call.tensors):
        with suppress(Refused):
            call.problem()


def _loosen(call: Call, *, any_weight: bool) -> None:
    """Let PyTorch's own functions serve most calls of this layer, or of every one whose weight is like this."""
    varied, run = Varied(), None
    if activation_named(call.request.activation) is not Activation.NONE:
        if any_weight:
            return
        run = _with_activation(call, varied)
    slots, soon = call.form.slots, meetings.affordable()
    slots.loosen(call.w, call.tensors, call.request, run, varied, any_weight=any_weight, soon=soon)


def _with_activation(call: Call, varied: Varied) -> Run:
    form, request, window = call.form, call.request, call.form.window(call.request)
    activation = activation_named(request.activation)

    def runs(x: Tensor, w: Tensor, bias: Tensor | None = None) -> Tensor:
        if varied.passes(x):
            return activate(form.own(x, w, bias, *window), activation)
        return beyond(form, x, w, bias, request)

    return runs
