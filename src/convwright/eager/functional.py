"""The public convolution functions, with the signatures of ``torch.nn.functional``.

>>> conv2d(torch.ones(1, 1, 4, 4), torch.ones(1, 1, 3, 3), padding=1, activation="relu")[0, 0, 0].tolist()
[4.0, 6.0, 6.0, 4.0]
>>> conv_transpose1d(torch.ones(1, 1, 3), torch.ones(1, 1, 2), stride=2)[0, 0].tolist()
[1.0, 1.0, 1.0, 1.0, 1.0, 1.0]
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import cycle
from random import Random
from typing import Any, NoReturn, Protocol

import torch
from torch import Tensor

from convwright import flags, torch_api
from convwright.core.policy import Policy
from convwright.core.problem import IntOrTuple
from convwright.eager.asking.ambient import asked, contexts
from convwright.eager.calls.call import FORMS, PUBLIC, Call, Form, Request
from convwright.eager.calls.slots import Slot
from convwright.eager.running.pytorchs_own import FAILURES, explain
from convwright.eager.slow_path import slow_path
from convwright.eager.tracing import compiled
from convwright.errors import BadArgument, BadCall, BadInput, first_line

Padding = IntOrTuple | str
SlowPath = Callable[[Call], Tensor]
Explain = Callable[[Exception, Call], None]


class Convolution(Protocol):
    """``torch.nn.functional.conv1d``, ``conv2d`` or ``conv3d`` with further options."""

    def __call__(
        self,
        input: Tensor,  # noqa: A002  the names are those of torch.nn.functional
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
        out: Tensor | None = None,
    ) -> Tensor: ...


class TransposedConvolution(Protocol):
    """``torch.nn.functional.conv_transpose1d``, ``2d`` or ``3d`` with further options."""

    def __call__(
        self,
        input: Tensor,  # noqa: A002
        weight: Tensor,
        bias: Tensor | None = None,
        stride: IntOrTuple = 1,
        padding: IntOrTuple = 0,
        output_padding: IntOrTuple = 0,
        groups: int = 1,
        dilation: IntOrTuple = 1,
        *,
        activation: str | None = None,
        residual: Tensor | None = None,
        algorithm: str | None = None,
        policy: Policy | None = None,
        out: Tensor | None = None,
    ) -> Tensor: ...


def convolution(form: Form, slow: SlowPath, explain: Explain, *, looks_first: bool = True) -> Convolution:
    """The function of ``form``: `first_look` with PyTorch's argument order."""
    look = first_look(form, slow, explain, looks_first=looks_first)

    def conv(
        input: Tensor,  # noqa: A002
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
        out: Tensor | None = None,
    ) -> Tensor:
        return look(
            input, weight, bias, stride, padding, dilation, groups, activation, residual, algorithm, policy, out, 0
        )

    made: Convolution = named_after(form, conv)
    return made


def transposed_convolution(
    form: Form, slow: SlowPath, explain: Explain, *, looks_first: bool = True
) -> TransposedConvolution:
    """The same for a transposed convolution, which has another argument order."""
    look = first_look(form, slow, explain, looks_first=looks_first)

    def conv_transpose(
        input: Tensor,  # noqa: A002
        weight: Tensor,
        bias: Tensor | None = None,
        stride: IntOrTuple = 1,
        padding: IntOrTuple = 0,
        output_padding: IntOrTuple = 0,
        groups: int = 1,
        dilation: IntOrTuple = 1,
        *,
        activation: str | None = None,
        residual: Tensor | None = None,
        algorithm: str | None = None,
        policy: Policy | None = None,
        out: Tensor | None = None,
    ) -> Tensor:
        return look(
            input, weight, bias, stride, padding, dilation, groups, activation, residual, algorithm, policy, out,
            output_padding,
        )  # fmt: skip

    made: TransposedConvolution = named_after(form, conv_transpose)
    return made


def first_look(form: Form, slow: SlowPath, explain: Explain, *, looks_first: bool) -> Callable[..., Tensor]:
    """A function that serves remembered calls of ``form`` and passes all others to ``slow``. If PyTorch's own function
    refuses a call, ``explain`` may raise a better error.

    With ``looks_first=False`` the caller has already checked whether the weight's calls need a lookup.
    """
    own, latest, rest, transposed = form.own, form.slots.latest, form.slots.rest, form.transposed
    skipping = (form.slots.skip_lookup if looks_first else _NOTHING).get
    passes, tensor, zero, one = cycle(PASSES).__next__, Tensor, 0, 1
    grad_enabled, is_compiling = torch.is_grad_enabled, torch.compiler.is_dynamo_compiling
    tf32_allowed, deterministic, tracing = flags.tf32_allowed, torch_api.deterministic, torch_api.is_tracing
    forward_level, modes, capturing = torch_api.forward_gradient_level, torch_api.function_modes, torch_api.is_capturing

    def look(
        input: Tensor,  # noqa: A002
        weight: Tensor,
        bias: Tensor | None,
        stride: IntOrTuple,
        padding: Padding,
        dilation: IntOrTuple,
        groups: int,
        activation: str | None,
        residual: Tensor | None,
        algorithm: str | None,
        policy: Policy | None,
        out: Tensor | None,
        output_padding: IntOrTuple,
    ) -> Tensor:
        is_torchs = False
        if residual is None and out is None and type(input) is tensor and not is_compiling():
            known = id(weight)
            if (
                (but_captures := skipping(known)) is not None and not (but_captures and capturing())
                and activation is None and algorithm is None and policy is None
                and (passes() or tracing()) and not deterministic()
            ):  # fmt: skip
                is_torchs, slots = True, _NONE
            else:
                slots = latest.get(known, _NONE)
            for slot in slots:
                if (
                    slot.no_bias is (bias is None)
                    and slot.grad is grad_enabled()
                    and slot.ambient is (asked() if contexts.open else None)
                    and (
                        (
                            slot.plain and activation is None and algorithm is None and policy is None
                            and slot.stride is stride and slot.padding is padding
                            and slot.dilation is dilation and slot.groups is groups
                            and slot.output_padding is output_padding
                        )
                        or slot.same((
                            bias is None, stride, padding, dilation, groups,
                            activation, algorithm, policy, output_padding,
                        ))
                    )
                ):  # fmt: skip
                    if input.is_nested:
                        break  # no strides to compare
                    if slot.run is None:
                        if slot.matches(input) and (slot.tf32 is None or slot.tf32 is tf32_allowed()):
                            if slot.in_graph is not None and capturing():
                                break
                            if len(slots) == 1 and policy is None:
                                rest(known, but_captures=slot.in_graph is not None)
                            is_torchs = True
                            break
                    elif (
                        (slot.matches(input, weight) if bias is None else slot.matches(input, weight, bias))
                        and slot.flags == slot.state()
                        and forward_level() < 0
                        and not modes()
                    ):
                        return slot.run(input, weight, bias)
        if is_torchs:
            try:
                # PyTorch takes 50 ns for each argument that is passed; a default costs nothing.
                if transposed:
                    return own(input, weight, bias, stride, padding, output_padding, groups, dilation)
                if groups is not one or dilation is not one:
                    return own(input, weight, bias, stride, padding, dilation, groups)
                if padding is not zero or stride is not one:
                    return own(input, weight, bias, stride, padding)
                return own(input, weight, bias)
            except FAILURES as theirs:
                request = Request(bias is None, stride, padding, dilation, groups, output_padding=output_padding)
                explain(theirs, Call(form, input, weight, bias, None, None, request))
                raise
        request = Request(
            bias is None, stride, padding, dilation, groups, activation, algorithm, policy, output_padding
        )
        return slow(Call(form, input, weight, bias, residual, out, request))

    return look


_NONE: tuple[Slot, ...] = ()
_NOTHING: dict[int, bool] = {}
_KINDS = {RuntimeError: BadCall, TypeError: BadArgument}
# If PyTorch's own function serves a weight, 30 of 31 calls skip the lookup: among other layers it costs 2 µs and more,
# since everything that it reads has left the cache (MobileNet V3, two cores of an AMD EPYC). The calls are drawn at
# random once, because a fixed period could miss layers and shapes that alternate. Under torch.jit no call is looked up:
# it traces twice, and reports calls from different lines as an error.
PASSES = tuple(Random(7).choices((True, False), (30, 1), k=4099))


def named_after(form: Form, function: Any) -> Any:
    """``function`` with the name of ``form``, where scripts find it."""
    function.__name__ = function.__qualname__ = form.name
    torch_api.name_for_scripts(function, f"aten::{form.name}")
    function.__doc__ = _DOC.format(name=form.name, like=_LIKE[form.transposed].format(axes=", ".join(form.axes)))
    return function


_LIKE = {
    False: "``input`` is (N, C, {axes}) or (C, {axes}), ``weight`` is (K, C / groups, …).",
    True: "``input`` is (N, C, {axes}) or (C, {axes}), ``weight`` is (C, K / groups, …).",
}
_DOC = """``torch.nn.functional.{name}``, computed by the best candidate that ``policy`` allows.

    {like} ``residual`` is added and ``activation`` ("relu", "silu", "gelu" or "hardswish") applied after the
    convolution. ``algorithm`` names a candidate by its id; "auto" leaves the choice free, even inside `algorithms`.
    ``out`` receives the result; it needs a call without a gradient.
    A problem that comes again is tuned within a small budget; the result is remembered across processes.
    """


def served(call: Call) -> Tensor:
    """``slow_path``. If PyTorch refuses the call too, the error contains both messages."""
    if torch.compiler.is_dynamo_compiling():
        return compiled(call)
    try:
        return slow_path(call)
    except BadInput as mistake:
        operands = (call.x, call.w, call.bias)
        if len({operand.device for operand in operands if isinstance(operand, Tensor)}) > 1:
            raise  # PyTorch may read arbitrary memory if operands are on several devices
        try:
            call.torchs_own()
        except Exception as theirs:
            refuse(mistake, theirs)
        raise


def explained(theirs: Exception, call: Call) -> None:
    """After PyTorch's own function has refused a call: raise a better error if its arguments are wrong."""
    try:
        explain(call)
    except BadInput as mistake:
        refuse(mistake, theirs)


def refuse(mistake: BadInput, theirs: Exception) -> NoReturn:
    """Raise an error of the type that PyTorch raised, with both messages.

    >>> refuse(BadInput("`padding` must be at least 0, got -1"), RuntimeError("negative padding is not supported"))
    Traceback (most recent call last):
    convwright.errors.BadCall: `padding` must be at least 0, got -1 (PyTorch says: negative padding is not supported)
    """
    words = first_line(theirs).removesuffix(", but expected one of:")  # a list follows it
    kind = next((ours for known, ours in _KINDS.items() if isinstance(theirs, known)), BadInput)
    raise kind(f"{mistake} (PyTorch says: {words})") from theirs


conv1d, conv2d, conv3d = (convolution(form, served, explained) for form in FORMS[:3])
conv_transpose1d, conv_transpose2d, conv_transpose3d = (
    transposed_convolution(form, served, explained) for form in FORMS[3:]
)
PUBLIC.update(
    conv1d=conv1d, conv2d=conv2d, conv3d=conv3d, conv_transpose1d=conv_transpose1d, conv_transpose2d=conv_transpose2d,
    conv_transpose3d=conv_transpose3d,
)  # fmt: skip
