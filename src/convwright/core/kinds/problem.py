"""The protocol of all kinds of problems: find, choose, store and measure know nothing else of a problem."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Protocol

from convwright.core.dtype import Arithmetic, DType
from convwright.core.tensor_spec import TensorSpec


class Problem(Protocol):
    """An operation to compute. It is frozen and hashable, validates itself, and prints as its ``key``.

    Its float64 reference and its data need PyTorch, so they are in ``convwright.measuring.checking``, by ``kind``.
    """

    kind: ClassVar[str]
    """The first word of the text form. A convolution's text starts with its sizes instead."""

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
        """The roles of the outputs; a plan returns the last one."""
        ...

    @property
    def output(self) -> TensorSpec:
        """The spec of the last output."""
        ...

    @property
    def dtype(self) -> DType:
        """The storage type that determines which arithmetic PyTorch's flags permit."""
        ...

    @property
    def flops(self) -> int:
        """Operations that an implementation must do."""
        ...

    @property
    def bytes(self) -> int:
        """Bytes that must be read and written at least once."""
        ...

    @property
    def reduction(self) -> int:
        """Terms summed into one element of the output, or arithmetic steps that lead to it."""
        ...

    def error_bound(self, arithmetic: Arithmetic) -> float:
        """The largest scaled error of a correct candidate, in units of the output's roundoff."""
        ...
