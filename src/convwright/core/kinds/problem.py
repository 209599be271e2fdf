"""What every kind of problem has in common: the only thing that find, choose, store and measure know of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Protocol

from convwright.core.dtype import Arithmetic, DType
from convwright.core.tensor_spec import TensorSpec


class Problem(Protocol):
    """An operation to compute: frozen, hashable, checks itself when it is made, prints as its ``key``.

    Its float64 reference and its data need PyTorch, so they are in ``convwright.measuring.checking``, by ``kind``.
    """

    kind: ClassVar[str]
    """The first word of the text form; a convolution's text begins with its sizes."""

    @property
    def key(self) -> str:
        """The full text form. ``convwright.core.kinds.text.parse`` gives an equal problem back."""
        ...

    @property
    def operands(self) -> Mapping[Any, TensorSpec]:  # by a str, or a kind's own StrEnum, which mypy takes for another
        """All operands by role, the outputs last."""
        ...

    @property
    def outputs(self) -> tuple[str, ...]:
        """The roles that are computed; the last one is what a plan returns."""
        ...

    @property
    def output(self) -> TensorSpec:
        """The operand of the last of these."""
        ...

    @property
    def dtype(self) -> DType:
        """The storage type that says which arithmetic PyTorch's flags permit."""
        ...

    @property
    def flops(self) -> int:
        """Operations that an implementation has to do."""
        ...

    @property
    def bytes(self) -> int:
        """Bytes that have to be read and written at least once."""
        ...

    @property
    def reduction(self) -> int:
        """Terms that are added up into one element of the output, or steps of arithmetic that lead to it."""
        ...

    def error_bound(self, arithmetic: Arithmetic) -> float:
        """The largest scaled error, in units of the output's roundoff, that a correct candidate can show."""
        ...
