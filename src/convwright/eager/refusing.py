"""What is wrong with a call, told to whoever knows PyTorch's own function: an error of its kind, and its words as well.

>>> refuse(BadInput("`padding` must be at least 0, got -1"), RuntimeError("negative padding is not supported"))
Traceback (most recent call last):
convwright.errors.BadCall: `padding` must be at least 0, got -1 (PyTorch says: negative padding is not supported)
"""

from __future__ import annotations

from typing import Any, NoReturn

import torch
from torch import Tensor

from convwright.eager.asking.request import Request
from convwright.eager.calls.form import Form
from convwright.eager.pytorchs_own import explain
from convwright.eager.slow_path import slow_path
from convwright.eager.tracing import compiled
from convwright.errors import BadArgument, BadCall, BadInput, first_line

_KINDS = {RuntimeError: BadCall, TypeError: BadArgument}


def served(
    form: Form,
    x: Tensor,
    w: Tensor,
    bias: Tensor | None,
    request: Request,
    residual: Tensor | None = None,
    out: Tensor | None = None,
) -> Tensor:
    """``slow_path``; where that refuses what is PyTorch's function alone, and so does PyTorch, both are told."""
    if torch.compiler.is_dynamo_compiling():
        return compiled(form, x, w, bias, request, residual, out)
    try:
        return slow_path(form, x, w, bias, request, residual, out)
    except BadInput as mistake:
        if not _is_pytorchs_alone(request, residual, out) or _are_apart(x, w, bias):
            raise
        try:
            form.own(x, w, bias, *form.window(request))
        except Exception as theirs:
            refuse(mistake, theirs)
        raise


def explained(theirs: Exception, form: Form, *given: Any) -> None:
    """Refuse what PyTorch's own function has refused, where what it was ``given`` is wrong."""
    try:
        explain(form, *given)
    except BadInput as mistake:
        refuse(mistake, theirs)


def refuse(mistake: BadInput, theirs: Exception) -> NoReturn:
    words = first_line(theirs).removesuffix(", but expected one of:")  # which a list follows
    kind = next((ours for known, ours in _KINDS.items() if isinstance(theirs, known)), BadInput)
    raise kind(f"{mistake} (PyTorch says: {words})") from theirs


def _is_pytorchs_alone(request: Request, residual: Tensor | None, out: Tensor | None) -> bool:
    """Whether all that a call asks for is a matter of PyTorch's function."""
    return all(each is None for each in (residual, out, request.activation, request.algorithm, request.policy))


def _are_apart(*operands: object) -> bool:
    """Whether they are on several devices, of which PyTorch reads what lies there by chance."""
    return len({operand.device for operand in operands if isinstance(operand, Tensor)}) > 1
