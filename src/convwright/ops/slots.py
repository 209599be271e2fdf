"""The hot path's memory: for each weight, what was decided at earlier calls, behind one check in C++.

A slot says for which call it stands: the tensors' types, shapes, strides, devices and dispatch keys (which tell
autocast, functorch and dispatch modes apart) are compared by PyTorch's own ``TensorGuards`` in 0.2 µs, where reading
them into a Python key takes 0.8. The weight's id only finds the slot; the check does not trust it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from convwright import flags

Run = Callable[..., Tensor]
_MOST_SLOTS_PER_WEIGHT = 8
_MOST_WEIGHTS = 4096


class Slot:
    """One remembered decision. ``run`` None means that PyTorch's own function is called with the same arguments.

    PyTorch's own function is right for whatever it is given, so there only the input and the precision flag are
    checked, which bear on the choice; ``short`` says that dilation and groups have their defaults, which PyTorch
    fills in faster than it reads them.
    """

    __slots__ = ("arguments", "flags", "grad", "matches", "next", "run", "short", "tf32")

    def __init__(
        self, tensors: tuple[Tensor, ...], arguments: tuple[object, ...], grad: bool, run: Run | None, short: bool
    ) -> None:
        self.matches = guard(tensors[:1] if run is None else tensors)
        # A caller's list may be changed after the call.
        self.arguments = tuple([*value] if isinstance(value, list) else value for value in arguments)
        self.grad = grad
        # Only for fp32 on a GPU does it matter whether PyTorch may use TF32.
        self.tf32 = flags.tf32_allowed() if tensors[0].is_cuda and tensors[0].dtype is torch.float32 else None
        self.flags = flags.state() if tensors[0].is_cuda else None
        self.run = run
        self.short = short
        self.next: Slot | None = None


table: dict[int, Slot] = {}


def guard(tensors: tuple[Tensor, ...]) -> Callable[..., bool]:
    """A check that is True for tensors that look exactly like these to PyTorch's dispatcher."""
    guards: Any = torch._C._dynamo.guards
    made = guards.TensorGuards(
        *tensors,
        dynamic_dims_sizes=[list(tensor.shape) for tensor in tensors],
        dynamic_dims_strides=[list(tensor.stride()) for tensor in tensors],
    )
    check: Callable[..., bool] = made.check
    return check


def matching(weight: Tensor, arguments: tuple[object, ...], tensors: tuple[Tensor, ...]) -> Slot | None:
    """The slot for a call with these tensors; None where none stands for it."""
    slot, grad = table.get(id(weight)), torch.is_grad_enabled()
    while slot is not None:
        looked_at = tensors[:1] if slot.run is None else tensors
        same = slot.arguments == arguments and slot.grad is grad
        if same and slot.matches(*looked_at) and (slot.flags is None or slot.flags == flags.state()):
            return slot
        slot = slot.next
    return None


def remember(weight: Tensor, slot: Slot) -> None:
    """Put ``slot`` first among those of ``weight``; the oldest beyond a few are dropped."""
    if len(table) >= _MOST_WEIGHTS:
        table.clear()
    slot.next = table.get(id(weight))
    table[id(weight)] = slot
    last, kept = slot, 1
    while last.next is not None and kept < _MOST_SLOTS_PER_WEIGHT:
        last, kept = last.next, kept + 1
    last.next = None


def forget() -> None:
    """Drop every slot, so that the next call of each kind decides anew."""
    table.clear()
