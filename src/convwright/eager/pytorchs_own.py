"""Calls that PyTorch's own functions serve, and one sentence about what is wrong with a call that they refuse."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from typing import Any

from torch import Tensor

from convwright.core.dtype import IN_PYTORCH
from convwright.eager.asking.autocast import autocasting, lowered_dtype
from convwright.eager.asking.request import Request
from convwright.eager.calls.call import Call
from convwright.eager.calls.form import Form
from convwright.eager.running.composite import EMPTY, check_tensors, composite, foreign, refuse_algorithm
from convwright.errors import BadInput, Refused
from convwright.tensors import NARROW, SERVED

# What PyTorch's functions raise.
FAILURES = (RuntimeError, TypeError, ValueError)
_PROMOTED = "autocast casts a convolution, but not its sum with a residual of another dtype"


def checked(call: Call) -> Call:
    """The call, if its operands are tensors of a number of dimensions and a dtype that its function takes."""
    check_tensors(call.form, input=call.x, weight=call.w, bias=call.bias, residual=call.residual, out=call.out)
    if call.x.dtype in NARROW:
        raise BadInput(
            f"{call.form.name} computes what PyTorch computes, got {call.x.dtype}; "
            "`cw.plan` makes ready what computes that"
        )
    if call.out is not None and call.trains:
        raise BadInput(
            "`out` needs torch.no_grad(), since a gradient is wanted here; conv2d_into writes into a slice with one"
        )
    return call


def why_pytorchs(call: Call) -> str | None:
    """Why only PyTorch's own functions can serve a call; None where others can."""
    why = foreign_dtype(call) or foreign(*call.operands)
    # Autocast lowers a convolution, not the sum with a residual of another dtype.
    promoted = call.residual is not None and autocasting(call.x) and call.residual.dtype is not lowered_dtype(call.x)
    return why or (_PROMOTED if promoted else None)


def foreign_dtype(call: Call) -> str | None:
    """What is said of complex and whole numbers, which nothing but PyTorch's own functions computes here."""
    return (
        None if call.x.dtype in SERVED else f"convolutions are computed in {', '.join(IN_PYTORCH)}, got {call.x.dtype}"
    )


def computed_by_pytorch(call: Call, why: str) -> Tensor:
    """PyTorch's own functions. A result without elements is nobody's work, whatever was asked for."""
    if why == EMPTY and (y := composed(call)).numel() == 0:
        return y
    refuse_algorithm(call.form, call.request, why)
    try:
        return composite(call)
    except RuntimeError as error:  # what PyTorch has no kernel for is one of these, too
        if "not implemented for" not in str(error) or call.x.dtype in SERVED:
            raise
        raise BadInput(why) from error


def composed(call: Call) -> Tensor:
    """PyTorch's own functions, and one sentence about what is wrong with their input."""
    try:
        return composite(call)
    except BadInput:
        raise
    except FAILURES:
        _refuse(call)
        raise


def explain(
    form: Form, x: Tensor, w: Tensor, bias: Tensor | None, stride: Any, padding: Any, dilation: Any, groups: Any,
    output_padding: Any = 0,
) -> None:  # fmt: skip
    """Refuse in one sentence what PyTorch's own function has refused, where what it was given is wrong."""
    request = Request(bias is None, stride, padding, dilation, groups, output_padding=output_padding)
    call = checked(Call(form, x, w, bias, None, None, request.kept()))
    _refuse(call if x.dim() == w.dim() else replace(call, x=x.unsqueeze(0)))


def _refuse(call: Call) -> None:
    """One sentence about what is wrong with a call, if something is; what no candidate could serve may be right."""
    if not any(tensor.is_nested for tensor in call.tensors):
        with suppress(Refused):
            call.problem()
