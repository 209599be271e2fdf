"""What every kind of problem has, whatever is to be computed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from convwright.core.direction import Role
from convwright.core.tensor_spec import TensorSpec


class Problem(Protocol):
    """Something to be computed. Finding, storing, measuring and predicting know only this."""

    @property
    def key(self) -> str:
        """The text form in full; equal for equal problems, stable across versions of the store."""

    @property
    def flops(self) -> int: ...

    @property
    def bytes(self) -> int:
        """The fewest bytes that must move: each input element that is used read once, the output written once."""

    @property
    def operands(self) -> Mapping[Role, TensorSpec]: ...
