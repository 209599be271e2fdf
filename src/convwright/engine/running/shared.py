"""Share constants between engines, so that equal ones exist once."""

from __future__ import annotations

from typing import Any
from weakref import ref

import torch
from torch import Tensor

from convwright import torch_api

# Integer dtypes by size in bytes. Tensors that are equal as integers have the same bits.
_INTEGERS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


class Shared:
    """Remembers the tensors made from each constant, as long as somebody holds them.

    >>> shared, ones = Shared(), torch.ones(2)
    >>> [shared.one("w", each) is ones for each in (ones, torch.ones(2), torch.zeros(2))]
    [True, True, False]
    """

    def __init__(self) -> None:
        self._known: dict[Any, list[ref[Tensor]]] = {}

    def one(self, name: str, tensor: Tensor) -> Tensor:
        """A known tensor of the constant ``name`` with the same bits and strides, or else this one."""
        known = self._known.setdefault((name, _form(tensor)), [])
        alive = [each for each in (held() for held in known) if each is not None]
        for each in alive:
            if each is tensor or _equal(each, tensor):
                return each
        known[:] = map(ref, [*alive, tensor])
        return tensor


def _form(tensor: Tensor) -> tuple[Any, ...]:
    """What tensors must have in common to replace one another. oneDNN's packed tensors have a form of their own."""
    if tensor.layout is torch.strided:
        lies: Any = tensor.stride()
    else:
        lies = tuple(torch_api.onednn_operator("get_mkldnn_serialized_md")(tensor).tolist())
    return tensor.layout, tensor.dtype, tensor.device, tuple(tensor.shape), lies


def _equal(first: Tensor, second: Tensor) -> bool:
    """Whether all bits are equal."""
    if first.layout is not torch.strided:
        return _equal(first.to_dense(), second.to_dense())
    bits = _INTEGERS[first.element_size()]
    return torch.equal(first.view(bits), second.view(bits))
