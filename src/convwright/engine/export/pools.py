"""Max and average pooling."""

from __future__ import annotations

from collections.abc import Mapping
from operator import floordiv, mod
from typing import Any

from convwright.core.dtype import IN_PYTORCH
from convwright.core.kinds.expression import Apply, Operand
from convwright.core.kinds.pool import PoolProblem
from convwright.core.kinds.pool_window import Pooling
from convwright.engine.export.arguments import arguments
from convwright.engine.export.builder import Builder, Translation
from convwright.engine.export.order import Order, in_order, taken
from convwright.engine.export.rows import reduced


def _fixed(pooling: Pooling) -> Translation:
    """Pooling with a given window size."""

    def pool(builder: Builder, node: Any) -> bool:
        given, dtype = arguments(node), builder.result(node).dtype
        x = builder.value(given["self"])
        shape, rank = builder.spec(x).shape, next(rank for rank in _RANKS if f"pool{rank}d" in str(node.target))
        if len(shape) != rank + 2 or dtype not in IN_PYTORCH or (given.get("divisor_override") or 1) < 1:
            return False  # an unbatched image, integers, or a divisor below 0
        problem = PoolProblem.of(
            pooling, shape, given["kernel_size"], stride=given["stride"] or None, padding=given["padding"],
            dilation=given.get("dilation", 1), ceil=given["ceil_mode"],
            includes_padding=given.get("count_include_pad", True), divisor=given.get("divisor_override"), dtype=dtype,
        )  # fmt: skip
        return _computed(builder, node, problem, x)

    return pool


def _adaptive(pooling: Pooling) -> Translation:
    """Pooling to a given output size. Equal windows that do not overlap make an ordinary pool. A window of one element
    is the identity; one over the whole axis is a reduction."""
    tree = Apply(_REDUCTIONS[pooling], (Operand("a"),))

    def pool(builder: Builder, node: Any) -> bool:
        given, result = arguments(node), builder.result(node)
        counts, first = given["output_size"], -len(given["output_size"])
        value, order = builder.permuted(given["self"])
        sizes = taken(builder.spec(value).shape, order)[first:]
        if result.dtype not in IN_PYTORCH or 0 in counts or any(map(mod, sizes, counts)):
            return False  # integers, no windows, or windows of different sizes
        window = tuple(map(floordiv, sizes, counts))
        if all(1 in each for each in zip(window, counts, strict=True)):
            dims = [dim for dim, taps in enumerate(window, first) if taps > 1]
            return _is(builder, node, *reduced(builder, node, tree, given["self"], dims))
        if len(result.shape) != len(counts) + 2:
            return False  # an unbatched image
        x = builder.value(given["self"])
        return _computed(builder, node, PoolProblem.of(pooling, builder.spec(x).shape, window, dtype=result.dtype), x)

    return pool


def _computed(builder: Builder, node: Any, problem: PoolProblem, x: str) -> bool:
    return _is(builder, node, builder.compute(builder.name(node), problem, {"x": x}), in_order(problem.rank + 2))


def _is(builder: Builder, node: Any, value: str, order: Order) -> bool:
    """Map a node to its pooled value. If it also gives indices of maxima, nobody reads them."""
    if isinstance(node.meta["val"], tuple):
        return builder.has_parts(node, [(value, order)])
    return builder.is_permuted(node, value, order)


_RANKS = (1, 2, 3)
_REDUCTIONS = {Pooling.MAX: "max", Pooling.AVG: "mean"}
TRANSLATIONS: Mapping[str, Translation] = {
    f"aten.{name}{rank}d{rest}.default": translation
    for rank in _RANKS
    for name, rest, translation in (
        ("max_pool", "", _fixed(Pooling.MAX)), ("max_pool", "_with_indices", _fixed(Pooling.MAX)),
        ("avg_pool", "", _fixed(Pooling.AVG)),
        ("adaptive_max_pool", "", _adaptive(Pooling.MAX)), ("adaptive_avg_pool", "", _adaptive(Pooling.AVG)),
    )
}  # fmt: skip
