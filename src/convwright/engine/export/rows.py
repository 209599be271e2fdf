"""Reductions, softmax and norms: expressions over rows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import prod
from typing import Any

from convwright.core.dtype import IN_PYTORCH
from convwright.core.kinds.expression import Apply, Expression, Operand
from convwright.core.kinds.row_expressions import Norm, softmax
from convwright.core.tensor_spec import TensorSpec
from convwright.engine.export.arguments import arguments
from convwright.engine.export.builder import Builder, Translation, per_channel
from convwright.engine.export.order import Order, in_order, inverse, original_dims

_A = Operand("a")


def _reduction(operator: str) -> Translation:
    def reduce(builder: Builder, node: Any) -> bool:
        given = arguments(node)
        if not given["dim"] or given.get("dtype") is not None or builder.result(node).dtype not in IN_PYTORCH:
            return False
        return builder.is_permuted(node, *reduced(builder, node, Apply(operator, (_A,)), given["self"], given["dim"]))

    return reduce


def maximum(builder: Builder, node: Any) -> bool:
    """The maximum of each row; its index must be unused."""
    given = arguments(node)
    if builder.result(node).dtype not in IN_PYTORCH:
        return False
    return builder.has_parts(node, [reduced(builder, node, Apply("max", (_A,)), given["self"], (given["dim"],))])


def vector_norm(builder: Builder, node: Any) -> bool:
    """The square root of the sum of squares."""
    given = arguments(node)
    reduces = builder.result(node).numel < builder.spec(builder.permuted(given["self"])[0]).numel
    if given["ord"] != 2 or not given["dim"] or given["dtype"] is not None or not reduces:
        return False
    squares = Apply("sum", (Apply("mul", (_A, _A)),))
    return builder.is_permuted(node, *reduced(builder, node, Apply("sqrt", (squares,)), given["self"], given["dim"]))


def reduced(builder: Builder, node: Any, tree: Expression, given: Any, dims: Iterable[int]) -> tuple[str, Order]:
    """``tree`` reduces each row to one element. Rows that have one element already are left as they are."""
    (x, order), result = builder.permuted(given), builder.result(node)
    row, shape = original_dims((dim % len(order) for dim in dims), order), builder.spec(x).shape
    kept = tuple(1 if dim in row else size for dim, size in enumerate(shape))
    made, squeezes = x, len(result.shape) < len(order)
    if prod(shape[dim] for dim in row) > 1:
        name = f"{builder.name(node)}{'_kept' * squeezes}"
        made = builder.compute_expression(name, tree, {"a": x}, TensorSpec(kept, result.dtype), row)
    return builder.without(builder.name(node), made, order, row) if squeezes else (made, order)


def row_softmax(builder: Builder, node: Any) -> bool:
    given = arguments(node)
    x, order = builder.permuted(given["self"])
    spec, row = builder.spec(x), original_dims((given["dim"] % len(order),), order)
    if builder.result(node).dtype != spec.dtype or spec.shape[row[0]] < 2:
        return False
    made = builder.compute_expression(builder.name(node), softmax(_A), {"a": x}, spec, row)
    return builder.is_permuted(node, made, order)


def layer_norm(builder: Builder, node: Any) -> bool:
    given, shape = arguments(node), builder.result(node).shape
    first = len(shape) - len(given["normalized_shape"])
    return _normalized(builder, node, first, (*(1,) * first, *shape[first:]))


def instance_norm(builder: Builder, node: Any) -> bool:
    """Normalise by the image's own statistics: each channel is a row."""
    return arguments(node)["use_input_stats"] and _normalized(builder, node, 2, per_channel(builder.result(node)))


def group_norm(builder: Builder, node: Any) -> bool:
    """Supported if each channel is a group, as in instance norm."""
    groups, result = arguments(node)["num_groups"], builder.result(node)
    first, groups = (2, 1) if groups == result.shape[1] else (1, groups)
    return _normalized(builder, node, first, per_channel(result), groups)


def _normalized(builder: Builder, node: Any, first: int, weights: tuple[int, ...], groups: int = 1) -> bool:
    """A row is all dimensions from ``first`` on, the first of them divided into ``groups``. Scale and shift have the
    shape ``weights``."""
    given = arguments(node)
    x, order = builder.permuted(given["input"])
    if groups > 1 and order[first] != min(order[first:]):  # groups divide the first dimension of a row
        x, order = builder.value(given["input"]), in_order(len(order))
    row, operands = original_dims(range(first, len(order)), order), {"a": x}
    for operand, name in (("b", "weight"), ("c", "bias")):
        if given[name] is not None:
            value = builder.view(f"{builder.name(node)}_{name}", builder.value(given[name]), weights)
            operands[operand] = builder.reordered(value, inverse(order))
    spec = builder.spec(x)
    if prod(spec.shape[dim] for dim in row) < 2:
        return False
    norm = Norm("a", given["eps"], *(operand if operand in operands else None for operand in ("b", "c")))
    made = builder.compute_expression(builder.name(node), norm.expression, operands, spec, row, groups)
    return builder.is_permuted(node, made, order)


TRANSLATIONS: Mapping[str, Translation] = {
    "aten.mean.dim": _reduction("mean"), "aten.sum.dim_IntList": _reduction("sum"),
    "aten.amax.default": _reduction("max"), "aten.max.dim": maximum,
    "aten.linalg_vector_norm.default": vector_norm,
    "aten.softmax.int": row_softmax, "aten._softmax.default": row_softmax,
    "aten.layer_norm.default": layer_norm, "aten.instance_norm.default": instance_norm,
    "aten.group_norm.default": group_norm,
}  # fmt: skip
