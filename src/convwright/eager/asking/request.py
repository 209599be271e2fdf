"""What a caller asks for besides the tensors."""

from __future__ import annotations

from operator import index
from types import UnionType
from typing import NamedTuple

from torch import Tensor

from convwright.core.epilogue import activation_named
from convwright.core.policy import Policy, check_policy
from convwright.core.problem import IntOrTuple
from convwright.errors import BadInput


class Request(NamedTuple):
    """The arguments of a call that are no tensors. ``output_padding`` is a transposed convolution's."""

    no_bias: bool
    stride: IntOrTuple
    padding: IntOrTuple | str
    dilation: IntOrTuple
    groups: int
    activation: str | None = None
    algorithm: str | None = None
    policy: Policy | None = None
    output_padding: IntOrTuple = 0

    def kept(self) -> Request:
        """The same, to be remembered: a caller's list may be changed after the call, and other numbers become ints.

        What names no algorithm or activation, and what is no policy, is refused here, where a call is looked at for
        the first time.
        """
        _check_algorithm(self.algorithm)
        check_policy(self.policy)
        activation_named(self.activation)
        if _FIXED.issuperset(map(type, self)) and not any(_holds(value, list | Tensor) for value in self):
            return self
        return Request._make([_kept(name, value) for name, value in zip(self._fields, self, strict=True)])

    def same(self, other: tuple[object, ...]) -> bool:
        """Whether these are equal; arrays and tensors, which compare by element, never are, and neither is what equals
        a whole number and is none to PyTorch."""
        try:
            return bool(self == other) and not any(map(_is_mistaken, (*other[1:5], other[8])))
        except (ValueError, TypeError, RuntimeError, OverflowError):
            return False


_FIXED = {int, bool, str, tuple, type(None), Policy}


def _check_algorithm(given: object) -> None:
    if given is not None and not (isinstance(given, str) and given):
        raise BadInput(
            f"`algorithm` must be an algorithm's id, for example 'torch/default', 'auto' or None, got {given!r}"
        )


def _is_mistaken(value: object) -> bool:
    return isinstance(value, float | bool) or (isinstance(value, list | tuple) and any(map(_is_mistaken, value)))


def _holds(value: object, kinds: type | UnionType) -> bool:
    return isinstance(value, list | tuple) and any(isinstance(each, kinds) for each in value)


def _kept(name: str, value: object) -> object:
    try:
        if _holds(value, Tensor):
            value = [index(each) if isinstance(each, Tensor) else each for each in value]  # type: ignore[attr-defined]
        nested = _holds(value, list)
        if value is None or (isinstance(value, int | str | tuple | Policy) and not nested):
            return value
        if isinstance(value, list) and not nested:
            return [*value]
        return index(value)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        wanted = "a whole number" if name == "groups" else "an int or a tuple of ints"
        raise BadInput(f"`{name}` must be {wanted}, got {value!r}") from None
