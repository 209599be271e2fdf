"""Orders of dimensions: dimension d of the permuted value is dimension ``order[d]`` of the value."""

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
    """The order after a second permutation.

    >>> after((0, 2, 3, 1), (0, 3, 1, 2))
    (0, 1, 2, 3)
    """
    return tuple(order[dim] for dim in then)


def taken(items: tuple[_Item, ...], order: Order) -> tuple[_Item, ...]:
    """Items listed by the value's dimensions, reordered to the permuted dimensions."""
    return tuple(items[dim] for dim in order)


def original(items: tuple[_Item, ...], order: Order) -> tuple[_Item, ...]:
    """Items listed by the permuted dimensions, reordered to the value's dimensions."""
    return taken(items, inverse(order))


def original_dims(dims: Iterable[int], order: Order) -> tuple[int, ...]:
    """Permuted dimensions as dimensions of the value, ascending."""
    return tuple(sorted(order[dim] for dim in dims))
