"""How an operand lies inside a scratch tensor of another shape or layout."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from torch import Tensor

from convwright.core.tensor_spec import TensorSpec
from convwright.tensors import empty

View = Callable[[Tensor], Tensor]


class Part(NamedTuple):
    """A part of an operand and its place in the scratch tensor: views of equal shape."""

    outside: View
    inside: View


def divided(tensor: Tensor, dim: int, sizes: Sequence[int]) -> Tensor:
    """A view in which ``dim`` becomes several dimensions of ``sizes``."""
    shape = tensor.shape
    return tensor.view(*shape[:dim], *sizes, *shape[dim + 1 :])


def _all(tensor: Tensor) -> Tensor:
    return tensor


WHOLE = (Part(_all, _all),)


@dataclass(frozen=True, slots=True)
class Embedding:
    """Where the parts of an operand lie in a scratch tensor of ``spec``.

    ``used_bytes`` is the size of all parts. ``holes`` are the rest of the scratch tensor, which must be zero.
    ``unused`` is the rest of the operand, which is zero in a gradient.
    """

    spec: TensorSpec
    used_bytes: int
    parts: tuple[Part, ...] = WHOLE
    holes: tuple[View, ...] = ()
    unused: tuple[View, ...] = ()

    def pack(self, weight: Tensor) -> Tensor:
        """``weight`` in its inner form, in new memory."""
        return Embedded(self, empty(self.spec, weight.device)).hold(weight)

    @property
    def held_bytes(self) -> int:
        """Bytes read and written to bring an operand in."""
        return self.used_bytes + self.spec.nbytes


class Embedded:
    """A scratch tensor with views of its parts."""

    def __init__(self, embedding: Embedding, tensor: Tensor) -> None:
        self.tensor = tensor
        self._embedding = embedding
        self._parts = [(outside, inside(tensor)) for outside, inside in embedding.parts]
        self._holes = [hole(tensor) for hole in embedding.holes]

    def hold(self, operand: Tensor) -> Tensor:
        """Copy ``operand`` into the scratch tensor, and return that."""
        for hole in self._holes:
            hole.zero_()
        for outside, inside in self._parts:
            inside.copy_(outside(operand))
        return self.tensor

    def release(self, out: Tensor) -> Tensor:
        """Copy the contents of the scratch tensor to ``out``, and return that."""
        for unused in self._embedding.unused:
            unused(out).zero_()
        for outside, inside in self._parts:
            outside(out).copy_(inside)
        return out
