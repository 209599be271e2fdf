"""Serve a call without a slot: a new call, a foreign tensor, autocast, or a residual or output given.

Read from the top: decisions of earlier calls, then the first call of its kind, which is decided now or later.
"""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from convwright import torch_api
from convwright.eager.asking.ambient import AUTO, freely
from convwright.eager.asking.autocast import autocasting, cast, lowering, uncast
from convwright.eager.calls.call import Call, as_batch, per_call
from convwright.eager.calls.slots import Run, Slot
from convwright.eager.decision import Decision, decide
from convwright.eager.gradients.regions import check_apart, count_write
from convwright.eager.latest import latest
from convwright.eager.running.bound import torchs_own
from convwright.eager.running.pytorchs_own import (
    checked,
    composed,
    computed_by_pytorch,
    is_plain,
    is_proxy,
    noted,
    why_pytorchs,
)
from convwright.eager.scheduler import When, scheduler
from convwright.errors import NothingLeft
from convwright.uncompiled import uncompiled


def slow_path(call: Call) -> Tensor:
    """Compute a call, and remember the decision for the next call like it."""
    x, w, bias, request = call.x, call.w, call.bias, call.request
    if is_plain(x) and is_plain(w) and (bias is None or is_plain(bias)):
        if x.dim() == call.form.rank + 1 and w.dim() == call.form.rank + 2 and x.layout is torch.strided:
            return _of_one_image(call)
        slot = call.form.slots.matching(w, request, call.tensors, call.extra)
        if slot is not None:
            return _run(slot.runs_now, call)
    elif any(map(is_proxy, call.operands)):
        return noted(call)
    if request.algorithm == AUTO:
        with freely(call.form.direction):
            return slow_path(replace(call, request=request._replace(algorithm=None)))
    return first_call(replace(call, request=request.kept()))


@uncompiled("what is chosen at a call is no part of a graph")
def first_call(call: Call) -> Tensor:
    """Compute a call of a kind that was not decided yet."""
    with torch_api.subclasses_not_told():  # some subclasses accept only the functions of layers
        why = why_pytorchs(checked(call))
    if why is not None:
        return computed_by_pytorch(call, why)
    try:
        _check_output(call)
        when = scheduler.when(call)
        if when is When.NOW:
            return _run(decided(call), call)
        y = composed(call)  # raises one sentence for a bad call, every time
        if when is When.NEVER and call.extra is None:
            call.form.slots.leave(call.w, call.tensors, Slot(call.tensors, call.request, torchs_own(call)))
        return y
    except NothingLeft:
        return composed(call)  # an empty tensor, or an error for some dtypes and devices


def decided(call: Call) -> Run | None:
    """The function that runs a call without a slot, remembered for the next call like it."""
    slots, forgotten, before = call.form.slots, call.form.slots.forgotten, latest.choice
    decision = _lowered(call) if autocasting(call.x) else decide(call)
    if latest.choice is before:  # otherwise it ran out of memory, and a fallback serves
        latest.choice = decision.choice or before
    # A decision for a capture is not a choice for eager calls. If slots were dropped meanwhile, the next call decides.
    capturing = call.x.is_cuda and torch_api.is_capturing()
    slot = Slot(call.tensors, call.request, decision.run, call.extra, decision.in_graph)
    if capturing or slots.forgotten != forgotten:
        return slot.runs_now
    if decision.lasts:
        slots.remember(call.w, call.tensors, slot)
    elif slot.is_torchs and call.request.policy is None:
        slots.rest(id(call.w))  # a few calls still look it up
    return slot.runs_now


def _lowered(call: Call) -> Decision:
    """The decision for the operands after autocast's casts; it makes the same casts."""
    given = call.x, call.w, call.bias
    x, w, bias = cast(*given)
    decision = uncast(x, lambda: decide(replace(call, x=x, w=w, bias=bias)))
    anew = per_call(call.form, call.request, first_call)
    run, in_graph = (each and lowering(each, given, anew) for each in (decision.run, decision.in_graph))
    return decision._replace(run=run, in_graph=in_graph)


def _run(run: Run | None, call: Call) -> Tensor:
    """``run`` on a call's operands. None means PyTorch's own function, which takes no output."""
    if run is None:
        return call.torchs_own()
    _check_output(call)
    y = run(*call.operands)
    if call.out is not None:
        count_write(call.out)
    return y


def _check_output(call: Call) -> None:
    if call.out is not None:
        check_apart(call.out, input=call.x, weight=call.w, bias=call.bias, residual=call.residual)


def _of_one_image(call: Call) -> Tensor:
    """A single image as a batch of one, except for PyTorch's own function, which accepts it as it is."""
    form, w, bias, request, slots = call.form, call.w, call.bias, call.request, call.form.slots
    if call.extra is None and slots.matching(w, request, call.tensors, None) is not None:
        return call.torchs_own()
    batch = Call(form, call.x.unsqueeze(0), w, bias, as_batch(call.residual), as_batch(call.out), request)
    if call.extra is None:
        slot = slots.matching(w, request, batch.tensors, None)
        if slot is not None and slot.is_torchs:
            slots.remember_image(w, call.tensors, request)
            return call.torchs_own()
    y = slow_path(batch)
    return y.squeeze(0) if call.out is None else call.out
