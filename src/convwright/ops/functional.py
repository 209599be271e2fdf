"""``conv2d`` as users call it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.autograd import forward_ad

from convwright import flags
from convwright.core.policy import Policy
from convwright.core.problem import IntOrTuple
from convwright.errors import BadInput
from convwright.ops import slots
from convwright.ops.autocast import autocasting, cast, lowering, uncast
from convwright.ops.composite import check_tensors, composite, foreign, refuse_algorithm
from convwright.ops.decide import decide
from convwright.ops.describe import Padding, problem_of
from convwright.ops.regions import check_apart, count_write
from convwright.ops.slots import Slot
from convwright.ops.tracing import traced

_C: Any = torch._C
_torch_conv2d: Callable[..., Tensor] = torch.conv2d
_tf32 = flags.tf32_allowed
_slots_of = slots.table.get
_grad_enabled = torch.is_grad_enabled
_flags = flags.state
_is_compiling = torch.compiler.is_dynamo_compiling


def conv2d(
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
    out: Tensor | None = None,
) -> Tensor:
    """``torch.nn.functional.conv2d``, computed by the best candidate that ``policy`` allows.

    ``residual`` is added and ``activation`` ("relu") applied behind the convolution. ``algorithm`` asks for one
    candidate by its id. ``out`` takes the result where no gradient is wanted. A problem that is met for the first
    time is tuned within a small budget; what was found is remembered across processes.

    >>> import torch
    >>> conv2d(torch.ones(1, 1, 4, 4), torch.ones(1, 1, 3, 3), padding=1, activation="relu")[0, 0, 0].tolist()
    [4.0, 6.0, 6.0, 4.0]
    """
    if residual is None and out is None and not _is_compiling():
        slot = _slots_of(id(weight))
        if slot is not None:
            arguments = (bias is None, stride, padding, dilation, groups, activation, algorithm, policy)
            grad = _grad_enabled()
            while slot is not None:
                if slot.arguments == arguments and slot.grad is grad:
                    if slot.run is None:
                        if slot.matches(input) and (slot.tf32 is None or slot.tf32 is _tf32()):
                            if slot.short:
                                return _torch_conv2d(input, weight, bias, stride, padding)
                            return _torch_conv2d(input, weight, bias, stride, padding, dilation, groups)
                    elif (
                        (slot.matches(input, weight) if bias is None else slot.matches(input, weight, bias))
                        and (slot.flags is None or slot.flags == _flags())
                        and forward_ad._current_level < 0
                    ):
                        return slot.run(input, weight, bias)
                slot = slot.next
    wanted = (stride, padding, dilation, groups, activation, algorithm, policy)
    return _beyond(input, weight, bias, wanted, residual, out)


def _beyond(
    x: Tensor,
    w: Tensor,
    bias: Tensor | None,
    arguments: tuple[Any, ...],
    residual: Tensor | None,
    out: Tensor | None,
) -> Tensor:
    """All calls that the first look does not settle: with a residual or an output given, new ones, foreign tensors."""
    check_tensors(input=x, weight=w)
    algorithm, policy = arguments[5:]
    if _is_compiling():
        y = traced(x, w, bias, *arguments[:5], algorithm=algorithm, policy=policy, residual=residual)
        return y if out is None else out.copy_(y)
    if foreign(x, w, bias, residual, out):
        refuse_algorithm(algorithm, policy)
        return composite(x, w, bias, *arguments[:5], residual=residual, out=out)
    if autocasting(x):
        return _under_autocast(x, w, bias, arguments, residual, out)
    if out is not None:
        check_apart(out, input=x, weight=w, bias=bias, residual=residual)
    operands = (x, w, bias, residual, out)
    tensors = _present(*operands)
    extended = (bias is None, *arguments)
    if residual is not None or out is not None:
        extended = (residual is None, out is None, *extended)
        slot = slots.matching(w, extended, tensors)
        if slot is not None and slot.run is not None:
            return _written(slot.run(*operands), out)
    return _first_meeting(operands, tensors, arguments, extended)


def _under_autocast(
    x: Tensor, w: Tensor, bias: Tensor | None, arguments: tuple[Any, ...], residual: Tensor | None, out: Tensor | None
) -> Tensor:
    """The call on cast operands, and a slot for the next one: a cast weight is new at each call and finds none."""
    lowered = cast(x, w, bias)
    y = uncast(x, lambda: _conv2d(*lowered, arguments, residual, out))
    if residual is not None or out is not None:
        return y
    key = (bias is None, *arguments)
    # The slot's check tells autocast on from off, and that of the call above was made with it off.
    found = uncast(x, lambda: slots.matching(lowered[1], key, _present(*lowered)))
    if found is not None:
        run = None if found.run is None else lowering(found.run)
        if lowered[1] is not w:
            del slots.table[id(lowered[1])]
        slots.remember(w, Slot(_present(x, w, bias), key, _grad_enabled(), run, found.short))
    return y


def _present(*operands: Tensor | None) -> tuple[Tensor, ...]:
    return tuple(tensor for tensor in operands if tensor is not None)


def _conv2d(
    x: Tensor, w: Tensor, bias: Tensor | None, arguments: tuple[Any, ...], residual: Tensor | None, out: Tensor | None
) -> Tensor:
    activation, algorithm, policy = arguments[4:]
    return conv2d(
        x, w, bias, *arguments[:4],
        activation=activation, residual=residual, algorithm=algorithm, policy=policy, out=out,
    )  # fmt: skip


def _first_meeting(
    operands: tuple[Tensor, Tensor, Tensor | None, Tensor | None, Tensor | None],
    tensors: tuple[Tensor, ...],
    arguments: tuple[Any, ...],
    extended: tuple[Any, ...],
) -> Tensor:
    x, w, bias, residual, out = operands
    stride, padding, dilation, groups, activation, algorithm, policy = arguments
    problem = problem_of(
        x, w, bias,
        stride=stride, padding=padding, dilation=dilation, groups=groups,
        activation=activation, residual=residual, out=out,
    )  # fmt: skip
    if out is not None and _grad_enabled() and any(tensor.requires_grad for tensor in tensors):
        raise BadInput(
            "`out` needs torch.no_grad(), since a gradient is wanted here; conv2d_into writes into a slice with one"
        )
    decision = decide(problem, (x, w, bias, residual), algorithm=algorithm, policy=policy or Policy(), bare=out is None)
    if not (x.is_cuda and _C._cuda_isCurrentStreamCapturing()):  # what serves inside a capture was not chosen
        slots.remember(w, Slot(tensors, extended, _grad_enabled(), decision.run, (dilation, groups) == (1, 1)))
    if decision.run is None:
        return _torch_conv2d(x, w, bias, stride, padding, dilation, groups)
    return _written(decision.run(*operands), out)


def _written(result: Tensor, out: Tensor | None) -> Tensor:
    if out is not None:
        count_write(out)
    return result
