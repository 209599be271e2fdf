"""Orders of dimensions: dimension d of what is permuted is dimension ``order[d]`` of the value itself."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeVar

Order = tuple[int, ...]
_Item = TypeVar("_Item")


def in_order(rank: int) -> Order:
    return tuple(range(rank))


def inverse(order: Order) -> Order:
    """
    >>> inverse((0, 2, 3, 1))
    (0, 3, 1, 2)
    """
    return tuple(map(order.index, in_order(len(order))))


def after(order: Order, then: Order) -> Order:
    """The order of what is permuted again.

    >>> after((0, 2, 3, 1), (0, 3, 1, 2))
    (0, 1, 2, 3)
    """
    return tuple(order[dim] for dim in then)


def taken(items: tuple[_Item, ...], order: Order) -> tuple[_Item, ...]:
    """What belongs to each dimension of the value, for each of what is permuted."""
    return tuple(items[dim] for dim in order)


def original(items: tuple[_Item, ...], order: Order) -> tuple[_Item, ...]:
    """What belongs to each dimension of what is permuted, for each of the value."""
    return taken(items, inverse(order))


def original_dims(dims: Iterable[int], order: Order) -> tuple[int, ...]:
    """Which dimensions of the value they are, in ascending order."""
    return tuple(sorted(order[dim] for dim in dims))
