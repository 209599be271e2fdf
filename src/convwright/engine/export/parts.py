"""Slices, splits and selections: each copies a part of a value."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import accumulate, pairwise
from typing import Any

from convwright.core.kinds.copy import CopyProblem
from convwright.core.tensor_spec import TensorSpec
from convwright.engine.export.arguments import arguments
from convwright.engine.export.builder import Builder, Translation
from convwright.engine.export.order import Order
from convwright.graph.layouts import dense


def slice_(builder: Builder, node: Any) -> bool:
    given = arguments(node)
    value, order = builder.permuted(given["self"])
    dim = order[given["dim"] % len(order)]
    size = builder.spec(value).shape[dim]
    start, end, _ = slice(given["start"], given["end"]).indices(size)
    if given["step"] != 1 or start >= end:
        return False
    return builder.is_permuted(node, _part(builder, builder.name(node), value, dim, start, end), order)


def select(builder: Builder, node: Any) -> bool:
    given = arguments(node)
    value, order = builder.permuted(given["self"])
    dim = order[given["dim"] % len(order)]
    index = given["index"] % builder.spec(value).shape[dim]
    return builder.is_permuted(node, *_selected(builder, builder.name(node), value, order, dim, index))


def unbind(builder: Builder, node: Any) -> bool:
    given, name = arguments(node), builder.name(node)
    value, order = builder.permuted(given["self"])
    dim = order[given["dim"] % len(order)]
    places = range(builder.spec(value).shape[dim])
    return builder.has_parts(node, [_selected(builder, f"{name}_{at}", value, order, dim, at) for at in places])


def split(builder: Builder, node: Any) -> bool:
    given, name = arguments(node), builder.name(node)
    value, order = builder.permuted(given["self"])
    dim = order[given["dim"] % len(order)]
    sizes = given["split_size"] if "split_size" in given else given["split_sizes"]
    ends = enumerate(pairwise(_ends(sizes, builder.spec(value).shape[dim])))
    return builder.has_parts(
        node, [(_part(builder, f"{name}_{place}", value, dim, *each), order) for place, each in ends]
    )


def _ends(size: int | Sequence[int], whole: int) -> list[int]:
    """The start of each part, and the end of the last."""
    if isinstance(size, int):
        return [*range(0, whole, size), whole]
    return [*accumulate(size, initial=0)]


def _selected(builder: Builder, name: str, value: str, order: Order, dim: int, index: int) -> tuple[str, Order]:
    """One index of a dimension, which is dropped from the value."""
    return builder.without(name, _part(builder, f"{name}_kept", value, dim, index, index + 1), order, (dim,))


def _part(builder: Builder, name: str, value: str, dim: int, start: int, end: int) -> str:
    spec = dense(builder.spec(value))
    if (start, end) == (0, spec.shape[dim]):
        return value
    margins = tuple((-start, end - size) if each == dim else (0, 0) for each, size in enumerate(spec.shape))
    shape = tuple(end - start if each == dim else size for each, size in enumerate(spec.shape))
    return builder.compute(name, CopyProblem(spec, TensorSpec(shape, spec.dtype), margins), {"x": value})


TRANSLATIONS: Mapping[str, Translation] = {
    "aten.slice.Tensor": slice_, "aten.select.int": select, "aten.unbind.int": unbind,
    "aten.split.Tensor": split, "aten.split_with_sizes.default": split,
}  # fmt: skip
