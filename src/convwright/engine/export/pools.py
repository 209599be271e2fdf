"""Pooling: maxima and averages of windows."""

from __future__ import annotations

import operator
from collections.abc import Mapping
from typing import Any

from convwright.core.dtype import IN_PYTORCH
from convwright.core.kinds.pool import PoolProblem
from convwright.core.kinds.pool_window import Pooling
from convwright.engine.export.arguments import arguments
from convwright.engine.export.builder import Builder, Translation
from convwright.engine.export.order import in_order


def maximum(builder: Builder, node: Any) -> bool:
    value = _pooled(builder, node, Pooling.MAX)
    return value is not None and builder.is_(node, value)


def maximum_with_indices(builder: Builder, node: Any) -> bool:
    """The same where nothing reads the places of the maxima."""
    if any(user.target is not operator.getitem or user.args[1] != 0 for user in node.users):
        return False
    value = _pooled(builder, node, Pooling.MAX)
    return value is not None and builder.has_parts(node, [(value, in_order(len(builder.spec(value).shape)))])


def average(builder: Builder, node: Any) -> bool:
    value = _pooled(builder, node, Pooling.AVG)
    return value is not None and builder.is_(node, value)


def _pooled(builder: Builder, node: Any, pooling: Pooling) -> str | None:
    """The value that pooling computes; None where no problem describes it."""
    given = arguments(node)
    x = builder.value(given["self"])
    spec, rank = builder.spec(x), next(rank for rank in _RANKS if f"pool{rank}d" in str(node.target))
    if len(spec.shape) != rank + 2 or spec.dtype not in IN_PYTORCH or (given.get("divisor_override") or 1) < 1:
        return None  # an image without a batch, integers, or a sum that changes its sign
    problem = PoolProblem.of(
        pooling, spec.shape, given["kernel_size"], stride=given["stride"] or None, padding=given["padding"],
        dilation=given.get("dilation", 1), ceil=given["ceil_mode"],
        includes_padding=given.get("count_include_pad", True), divisor=given.get("divisor_override"), dtype=spec.dtype,
    )  # fmt: skip
    return builder.compute(builder.name(node), problem, {"x": x})


_RANKS = (1, 2, 3)
TRANSLATIONS: Mapping[str, Translation] = {
    **dict.fromkeys((f"aten.max_pool{rank}d.default" for rank in _RANKS), maximum),
    **dict.fromkeys((f"aten.max_pool{rank}d_with_indices.default" for rank in _RANKS), maximum_with_indices),
    **dict.fromkeys((f"aten.avg_pool{rank}d.default" for rank in _RANKS), average),
}
