"""The hot path's memory: for each weight, what was decided at earlier calls, behind one check in C++.

A slot says for which call it stands: the tensors' types, shapes, strides, devices and dispatch keys (which tell
autocast, functorch and dispatch modes apart) are compared by PyTorch's own ``TensorGuards`` in 0.2 µs, where reading
them into a Python key takes 0.8. The weight's id only finds the slot; the check does not trust it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from convwright import flags
from convwright.ops import ambient

if TYPE_CHECKING:
    from convwright.ops.form import Request

Run = Callable[..., Tensor]
# A layer that sees many shapes is served by the second look, which finds a slot by its shape.
_MOST_AT_FIRST_LOOK = 3
_MOST_WEIGHTS = 4096
_MOST_SLOTS = 1 << 16


class Slot:
    """One remembered decision. ``run`` None means that PyTorch's own function is called with the same arguments.

    PyTorch's own function is right for whatever it is given, so there only the input and the precision flag are
    checked, which bear on the choice; ``short`` says that dilation and groups have their defaults, which PyTorch
    fills in faster than it reads them. The request's fields are repeated here, since an ``is`` beside each is the
    quickest way to compare them. ``extra`` tells calls with a residual or an output given from those without.
    """

    __slots__ = (
        "activation", "algorithm", "ambient", "dilation", "extra", "flags", "grad", "groups", "matches", "next",
        "no_bias", "output_padding", "padding", "policy", "request", "run", "short", "stride", "tf32",
    )  # fmt: skip

    def __init__(self, tensors: tuple[Tensor, ...], request: Request, run: Run | None, extra: object = None) -> None:
        self.matches = guard(tensors[:1] if run is None else tensors)
        # A caller's list may be changed after the call.
        self.request = request._replace(
            **{name: [*value] for name, value in request._asdict().items() if isinstance(value, list)}
        )
        for name, value in self.request._asdict().items():
            setattr(self, name, value)
        self.short = (request.dilation, request.groups) == (1, 1)
        self.extra = extra
        self.ambient = ambient.current()
        self.grad = torch.is_grad_enabled()
        # Only for fp32 on a GPU does it matter whether PyTorch may use TF32.
        self.tf32 = flags.tf32_allowed() if tensors[0].is_cuda and tensors[0].dtype is torch.float32 else None
        self.flags = flags.state() if tensors[0].is_cuda else None
        self.run = run
        self.next: Slot | None = None

    def stands_for(self, request: Request, tensors: tuple[Tensor, ...], extra: object) -> bool:
        """Whether this is the slot of a call, looked at without hurry."""
        return (
            self.request == request
            and self.extra == extra
            and self.grad is torch.is_grad_enabled()
            and self.ambient is ambient.current()
            and self.matches(*(tensors[:1] if self.run is None else tensors))
            and (self.flags is None or self.flags == flags.state())
        )


class Slots:
    """The slots of one function: the latest few of each weight in a chain, and all of them by weight and shape."""

    def __init__(self) -> None:
        self.latest: dict[int, Slot] = {}
        self._by_shape: dict[tuple[int, torch.Size], list[Slot]] = {}

    def matching(self, weight: Tensor, request: Request, tensors: tuple[Tensor, ...], extra: object) -> Slot | None:
        """The slot for a call with these tensors, input first; None where none stands for it."""
        known = self._by_shape.get((id(weight), tensors[0].shape), ())
        return next((slot for slot in known if slot.stands_for(request, tensors, extra)), None)

    def remember(self, weight: Tensor, tensors: tuple[Tensor, ...], slot: Slot) -> None:
        """Put ``slot`` first among those of ``weight``; the oldest in its chain drops out of that."""
        if len(self.latest) >= _MOST_WEIGHTS or len(self._by_shape) >= _MOST_SLOTS:
            self.forget()
        # A slot whose check no longer holds, of a weight that is gone, goes with the first that finds it.
        alike = self._by_shape.setdefault((id(weight), tensors[0].shape), [])
        alike.insert(0, slot)
        del alike[8:]
        if slot.extra is None:
            slot.next = self.latest.get(id(weight))
            self.latest[id(weight)] = slot
            last, kept = slot, 1
            while last.next is not None and kept < _MOST_AT_FIRST_LOOK:
                last, kept = last.next, kept + 1
            last.next = None

    def drop(self, weight: Tensor) -> None:
        """Forget all slots of ``weight``."""
        self.latest.pop(id(weight), None)
        for key in [key for key in self._by_shape if key[0] == id(weight)]:
            del self._by_shape[key]

    def forget(self) -> None:
        """Drop every slot, so that the next call of each kind decides anew."""
        self.latest.clear()
        self._by_shape.clear()


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
