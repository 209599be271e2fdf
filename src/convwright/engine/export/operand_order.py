"""The dimension order in which an operation computes: its operands' order, if they share one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from convwright.engine.export.builder import Builder
from convwright.engine.export.order import Order, in_order, inverse


def shared_order(builder: Builder, nodes: Sequence[Any], rank: int) -> Order:
    """The order shared by all non-constant operands with ``rank`` dimensions; else the plain order."""
    orders = dict[Order, None]()
    for node in nodes:
        value, order = builder.permuted(node)
        if len(order) == rank and not builder.is_constant(value):
            orders[order] = None
        elif not builder.is_constant(value):
            return in_order(rank)
    return next(iter(orders)) if len(orders) == 1 else in_order(rank)


def in_order_of(builder: Builder, node: Any, order: Order) -> str:
    """The value of a node, for an operation whose dimensions are in ``order``."""
    value, own = builder.permuted(node)
    if own == order:
        return value
    value, rank = builder.value(node), len(order)
    shape = builder.spec(value).shape
    if order == in_order(rank):
        return value
    whole = builder.view(f"{value}_whole", value, (*(1,) * (rank - len(shape)), *shape))
    return builder.reordered(whole, inverse(order))
