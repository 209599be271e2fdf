"""The convolutions as users call them, with the signatures of ``torch.nn.functional``.

>>> conv2d(torch.ones(1, 1, 4, 4), torch.ones(1, 1, 3, 3), padding=1, activation="relu")[0, 0, 0].tolist()
[4.0, 6.0, 6.0, 4.0]
>>> conv_transpose1d(torch.ones(1, 1, 3), torch.ones(1, 1, 2), stride=2)[0, 0].tolist()
[1.0, 1.0, 1.0, 1.0, 1.0, 1.0]
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import cycle
from random import Random
from typing import Any, Protocol

import torch
from torch import Tensor
from torch.autograd import forward_ad

from convwright import flags
from convwright.core.policy import Policy
from convwright.core.problem import IntOrTuple
from convwright.eager.asking.ambient import asked, contexts
from convwright.eager.asking.function_modes import modes
from convwright.eager.asking.request import Request
from convwright.eager.calls import form as forms
from convwright.eager.calls.form import Form
from convwright.eager.calls.slots import Slot
from convwright.eager.pytorchs_own import FAILURES
from convwright.eager.refusing import explained, served

_C: Any = torch._C
_jit: Any = torch.jit._builtins
Padding = IntOrTuple | str
SlowPath = Callable[[Form, Tensor, Tensor, Tensor | None, Request, Tensor | None, Tensor | None], Tensor]
Explain = Callable[..., None]


class Convolution(Protocol):
    """``torch.nn.functional.conv1d``, ``conv2d`` or ``conv3d``, and what can be asked for besides."""

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
    """``torch.nn.functional.conv_transpose1d``, ``2d`` or ``3d``, and what can be asked for besides."""

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


def convolution(
    form: Form, slow: SlowPath = served, explain: Explain = explained, *, looks_first: bool = True
) -> Convolution:
    """The function of ``form``: a first look for a remembered call, and ``slow`` for everything else. What PyTorch's
    own function refuses ``explain`` may refuse in better words.

    It is made here for each form, so that the first look is a call of its own and not one more inside another. Unless
    it ``looks_first`` another function has looked whether a weight's calls need no look.
    """
    own, latest, rest = form.own, form.slots.latest, form.slots.rest
    skip_lookup = form.slots.skip_lookup if looks_first else _NOTHING
    passes, tensor, zero, one = cycle(PASSES).__next__, Tensor, 0, 1
    grad_enabled, is_compiling = torch.is_grad_enabled, torch.compiler.is_dynamo_compiling
    tf32_allowed, deterministic, tracing = flags.tf32_allowed, flags.deterministic, _C._is_tracing

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
        if residual is None and out is None and type(input) is tensor and not is_compiling():
            known = id(weight)
            if (
                known in skip_lookup and activation is None and algorithm is None and policy is None
                and (passes() or tracing()) and not deterministic()
            ):  # fmt: skip
                try:
                    # PyTorch reads each argument in 50 ns, and fills in what is not there in none.
                    if groups is not one or dilation is not one:
                        return own(input, weight, bias, stride, padding, dilation, groups)
                    if padding is not zero or stride is not one:
                        return own(input, weight, bias, stride, padding)
                    return own(input, weight, bias)
                except FAILURES as theirs:
                    explain(theirs, form, input, weight, bias, stride, padding, dilation, groups)
                    raise
            try:
                slots = latest[known]
            except KeyError:
                slots = _NONE
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
                        )
                        or slot.same((
                            bias is None, stride, padding, dilation, groups, activation, algorithm, policy, 0
                        ))
                    )
                ):  # fmt: skip
                    if input.is_nested:
                        break  # which has no strides to compare
                    if slot.run is None:
                        if slot.matches(input) and (slot.tf32 is None or slot.tf32 is tf32_allowed()):
                            if len(slots) == 1 and policy is None:
                                rest(known)
                            try:
                                if slot.short:
                                    return own(input, weight, bias, stride, padding)
                                return own(input, weight, bias, stride, padding, dilation, groups)
                            except FAILURES as theirs:
                                explain(theirs, form, input, weight, bias, stride, padding, dilation, groups)
                                raise
                    elif (
                        (slot.matches(input, weight) if bias is None else slot.matches(input, weight, bias))
                        and slot.flags == slot.state()
                        and forward_ad._current_level < 0
                        and not modes()
                    ):
                        return slot.run(input, weight, bias)
        request = Request(bias is None, stride, padding, dilation, groups, activation, algorithm, policy)
        return slow(form, input, weight, bias, request, residual, out)

    made: Convolution = named_after(form, conv)
    return made


def transposed_convolution(
    form: Form, slow: SlowPath = served, explain: Explain = explained, *, looks_first: bool = True
) -> TransposedConvolution:
    """The same for a transposed convolution, whose arguments stand in another order."""
    own, latest, rest = form.own, form.slots.latest, form.slots.rest
    skip_lookup = form.slots.skip_lookup if looks_first else _NOTHING
    passes, tensor = cycle(PASSES).__next__, Tensor
    grad_enabled, is_compiling = torch.is_grad_enabled, torch.compiler.is_dynamo_compiling
    tf32_allowed, deterministic, tracing = flags.tf32_allowed, flags.deterministic, _C._is_tracing

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
        if residual is None and out is None and type(input) is tensor and not is_compiling():
            known = id(weight)
            if (
                known in skip_lookup and activation is None and algorithm is None and policy is None
                and (passes() or tracing()) and not deterministic()
            ):  # fmt: skip
                try:
                    return own(input, weight, bias, stride, padding, output_padding, groups, dilation)
                except FAILURES as theirs:
                    explain(theirs, form, input, weight, bias, stride, padding, dilation, groups, output_padding)
                    raise
            try:
                slots = latest[known]
            except KeyError:
                slots = _NONE
            for slot in slots:
                if (
                    slot.no_bias is (bias is None)
                    and slot.grad is grad_enabled()
                    and slot.ambient is (asked() if contexts.open else None)
                    and (
                        (
                            slot.stride is stride and slot.padding is padding and slot.dilation is dilation
                            and slot.output_padding is output_padding and slot.groups is groups
                            and slot.activation is activation and slot.algorithm is algorithm and slot.policy is policy
                        )
                        or slot.same((
                            bias is None, stride, padding, dilation, groups,
                            activation, algorithm, policy, output_padding,
                        ))
                    )
                ):  # fmt: skip
                    if input.is_nested:
                        break  # which has no strides to compare
                    if slot.run is None:
                        if slot.matches(input) and (slot.tf32 is None or slot.tf32 is tf32_allowed()):
                            if len(slots) == 1 and policy is None:
                                rest(known)
                            try:
                                return own(input, weight, bias, stride, padding, output_padding, groups, dilation)
                            except FAILURES as theirs:
                                explain(
                                    theirs, form, input, weight, bias, stride, padding, dilation, groups, output_padding
                                )
                                raise
                    elif (
                        (slot.matches(input, weight) if bias is None else slot.matches(input, weight, bias))
                        and slot.flags == slot.state()
                        and forward_ad._current_level < 0
                        and not modes()
                    ):
                        return slot.run(input, weight, bias)
        request = Request(
            bias is None, stride, padding, dilation, groups, activation, algorithm, policy, output_padding
        )
        return slow(form, input, weight, bias, request, residual, out)

    made: TransposedConvolution = named_after(form, conv_transpose)
    return made


_NONE: tuple[Slot, ...] = ()
_NOTHING: frozenset[int] = frozenset()
# Where PyTorch's own function serves a weight, 30 of 31 calls are not looked at: among other layers a look costs 2 µs
# and more, as everything that it reads has left the cache (MobileNet V3, two cores of an AMD EPYC). Which ones is drawn
# by lot, once, since layers and shapes that come in turn would hide behind each other. While torch.jit traces none is:
# it traces twice, and takes it for an error where calls were made in different lines.
PASSES = tuple(Random(7).choices((True, False), (30, 1), k=4099))


def named_after(form: Form, function: Any) -> Any:
    """``function`` with the name of ``form``, and as what scripts find it."""
    function.__name__ = function.__qualname__ = form.name
    _jit._register_builtin(function, f"aten::{form.name}")  # torch.jit.script finds PyTorch's operator
    function.__doc__ = _DOC.format(name=form.name, like=_LIKE[form.transposed].format(axes=", ".join(form.axes)))
    return function


_LIKE = {
    False: "``input`` is (N, C, {axes}) or (C, {axes}), ``weight`` is (K, C / groups, …).",
    True: "``input`` is (N, C, {axes}) or (C, {axes}), ``weight`` is (C, K / groups, …).",
}
_DOC = """``torch.nn.functional.{name}``, computed by the best candidate that ``policy`` allows.

    {like} ``residual`` is added and ``activation`` ("relu", "silu", "gelu" or "hardswish") applied behind the
    convolution. ``algorithm`` asks for one candidate by its id; "auto" is the free choice, also where `algorithms`
    asks for something around the call. ``out`` takes the result where no gradient is wanted.
    A problem that comes again is tuned within a small budget; what was found is remembered across processes.
    """

conv1d = convolution(forms.CONV1D)
conv2d = convolution(forms.CONV2D)
conv3d = convolution(forms.CONV3D)
conv_transpose1d = transposed_convolution(forms.CONV_TRANSPOSE1D)
conv_transpose2d = transposed_convolution(forms.CONV_TRANSPOSE2D)
conv_transpose3d = transposed_convolution(forms.CONV_TRANSPOSE3D)
forms.PUBLIC.update(
    conv1d=conv1d, conv2d=conv2d, conv3d=conv3d, conv_transpose1d=conv_transpose1d, conv_transpose2d=conv_transpose2d,
    conv_transpose3d=conv_transpose3d,
)  # fmt: skip
