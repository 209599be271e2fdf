"""The six functions: what tells one of PyTorch's convolutions from another."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any

import torch
from torch import Tensor

from convwright import flags
from convwright.core.direction import Direction
from convwright.eager.asking.request import Request
from convwright.eager.calls.slots import Slots
from convwright.forking import in_child
from convwright.tuning.session import when_news


@dataclass(frozen=True, eq=False, slots=True)
class Form:
    """One public function: PyTorch's ``own`` counterpart, and the calls that are remembered.

    ``axes`` are the spatial dimensions; ``stands_in`` marks what is put in PyTorch's place, whose callers asked for
    nothing.
    """

    name: str
    axes: tuple[str, ...]
    transposed: bool
    own: Callable[..., Tensor]
    slots: Slots = field(default_factory=Slots)
    stands_in: bool = False

    def window(self, request: Request) -> tuple[Any, ...]:
        """The arguments that ``own`` takes behind the tensors, in its order."""
        if self.transposed:
            return request.stride, request.padding, request.output_padding, request.groups, request.dilation
        return request.stride, request.padding, request.dilation, request.groups

    @property
    def direction(self) -> Direction:
        """That of the problems which its calls pose."""
        return Direction.BACKWARD_DATA if self.transposed else Direction.FORWARD

    @property
    def rank(self) -> int:
        """How many spatial dimensions there are. A number that is stored could be any to a compiler."""
        return len(self.axes)


CONV1D = Form("conv1d", ("L",), False, torch.conv1d)
CONV2D = Form("conv2d", ("H", "W"), False, torch.conv2d)
CONV3D = Form("conv3d", ("D", "H", "W"), False, torch.conv3d)
CONV_TRANSPOSE1D = Form("conv_transpose1d", ("L",), True, torch.conv_transpose1d)
CONV_TRANSPOSE2D = Form("conv_transpose2d", ("H", "W"), True, torch.conv_transpose2d)
CONV_TRANSPOSE3D = Form("conv_transpose3d", ("D", "H", "W"), True, torch.conv_transpose3d)
# The functions that users call, by the names of their forms.
PUBLIC: dict[str, Callable[..., Tensor]] = {}
FORMS = (CONV1D, CONV2D, CONV3D, CONV_TRANSPOSE1D, CONV_TRANSPOSE2D, CONV_TRANSPOSE3D)


@cache
def stand_ins() -> tuple[Form, ...]:
    """The same six with a memory of their own, for what is put in the place of PyTorch's functions."""
    return tuple(replace(form, slots=Slots(), stands_in=True) for form in FORMS)


def forget() -> None:
    """Drop every remembered call, so that the next one of each kind decides anew."""
    for form in (*FORMS, *stand_ins()):
        form.slots.forget()


def _forget_gpu() -> None:
    """What was decided for a GPU serves nobody in a child, which PyTorch does not let use it."""
    if flags.cuda_lost():
        forget()


when_news(forget)
in_child(_forget_gpu)
