"""A property that is computed once per object."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, Self, TypeVar, overload

_Value = TypeVar("_Value")


class once(Generic[_Value]):  # noqa: N801  it stands where ``property`` does
    """A property that is computed at first use and kept.

    In Python 3.11 ``functools.cached_property`` holds a lock for all objects of a class while it computes. A child
    forked at that moment would wait for it forever.

    >>> class Circle:
    ...     @once
    ...     def area(self) -> float:
    ...         print("computing")
    ...         return 3.14
    >>> circle = Circle()
    >>> circle.area, circle.area
    computing
    (3.14, 3.14)
    """

    def __init__(self, compute: Callable[[Any], _Value]) -> None:
        self._compute = compute
        self.__doc__ = compute.__doc__

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    @overload
    def __get__(self, owner: None, kind: type) -> Self: ...
    @overload
    def __get__(self, owner: object, kind: type | None = None) -> _Value: ...
    def __get__(self, owner: object, kind: type | None = None) -> _Value | Self:
        if owner is None:
            return self
        value: _Value = self._compute(owner)
        vars(owner)[self._name] = value  # found before this property from now on
        return value
