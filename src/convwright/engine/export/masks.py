"""Comparisons and what reads them. A graph holds no booleans: a mask is a tensor of ones and zeros in the dtype of what
is compared."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from convwright.core.kinds.expression import Apply, Constant, Expression
from convwright.engine.export.builder import Builder, Translation, Unknown
from convwright.engine.export.elementwise import elementwise
from convwright.engine.export.expressions import Builder as Build
from convwright.engine.export.expressions import number

_ONE, _ZERO = Constant(1.0), Constant(0.0)
_COMPARISONS = ("lt", "le", "gt", "ge", "eq", "ne")
_PRODUCTS = ("aten.mul.Tensor",)
_COPIES = ("aten._to_copy.default", "aten.to.dtype", "aten.type_as.default")
# The place of the mask in the operators that choose by it.
_CHOOSING = {
    **dict.fromkeys((f"aten.where.{kind}" for kind in ("self", "Scalar", "ScalarSelf", "ScalarOther")), 0),
    "aten.masked_fill.Scalar": 1,
}


def _chosen(mask: Expression, a: Any, b: Any) -> Expression | None:
    first, second = number(a), number(b)
    return None if first is None or second is None else Apply("where", (Apply("ne", (mask, _ZERO)), first, second))


def _not(mask: Expression) -> Expression:
    return Apply("sub", (_ONE, mask))


def _and(a: Expression, b: Expression) -> Expression:
    return Apply("minimum", (a, b))


def _or(a: Expression, b: Expression) -> Expression:
    return Apply("maximum", (a, b))


def _either(a: Expression, b: Expression) -> Expression:
    return Apply("where", (Apply("ne", (a, b)), _ONE, _ZERO))


def _of_two(name: str, build: Build) -> dict[str, Build]:
    return dict.fromkeys(
        (f"aten.logical_{name}.default", f"aten.bitwise_{name}.Tensor", f"aten.__{name}__.Tensor"), build
    )


_COMBINED: Mapping[str, Build] = {
    **_of_two("and", _and), **_of_two("or", _or), **_of_two("xor", _either),
    **dict.fromkeys(("aten.logical_not.default", "aten.bitwise_not.default"), _not),
}  # fmt: skip


def compared(builder: Builder, node: Any) -> bool:
    """A mask where each element of a tensor is compared with a number, or with an element of another tensor."""
    name, tensor = str(node.target).removeprefix("aten.").partition(".")[0], node.args[0].meta["val"]
    if not tensor.is_floating_point() or not _all_take_masks(node) or _is_fixed(builder, node):
        return False

    def build(a: Expression, b: Any) -> Expression | None:
        # PyTorch compares in the dtype of the tensor.
        b = float(torch.tensor(b, dtype=tensor.dtype)) if isinstance(b, int | float) else b
        second = number(b)
        return None if second is None else Apply("where", (Apply(name, (a, second)), _ONE, _ZERO))

    return _made(builder, node, build)


def combined(builder: Builder, node: Any) -> bool:
    """A mask of masks."""
    if not (all(_is_mask(builder, each) for each in node.args) and _all_take_masks(node)):
        return False
    return _made(builder, node, _COMBINED[str(node.target)])


def _made(builder: Builder, node: Any, build: Build) -> bool:
    """A mask in the dtype of what it is made of."""
    value, _ = builder.permuted(node.args[0])
    return elementwise(builder, node, build, builder.spec(value).dtype)


def chosen(builder: Builder, node: Any) -> bool:
    """One of two values by a mask."""
    place = _CHOOSING[str(node.target)]
    if not _is_mask(builder, node.args[place]):
        return False
    build: Build = _chosen if place == 0 else lambda kept, mask, value: _chosen(mask, value, kept)
    if not elementwise(builder, node, build, builder.result(node).dtype):
        raise Unknown("it chooses by a mask, between finite numbers and tensors only")
    return True


def _is_fixed(builder: Builder, node: Any) -> bool:
    """Whether a node depends on weights alone, so that it is computed once, as a boolean."""
    return all(builder.is_constant(builder.permuted(each)[0]) for each in node.all_input_nodes)


def _is_mask(builder: Builder, node: Any) -> bool:
    """Whether a node is a mask in the graph, and no boolean that was computed once."""
    return isinstance(node, torch.fx.Node) and str(node.target) in _MASKS and builder.tensor(node) is None


def _all_take_masks(node: Any) -> bool:
    """Whether no node reads a mask as a boolean, but as a choice, a factor or a number. Assertions have no users."""
    return all(_takes_mask(user, node) for user in node.users if user.users or user.op == "output")


def _takes_mask(user: Any, mask: Any) -> bool:
    target = str(user.target)
    if target in _CHOOSING:
        place = _CHOOSING[target]
        return all((each is mask) == (at == place) for at, each in enumerate(user.args))
    if target in _PRODUCTS:
        return any(isinstance(each, torch.fx.Node) and each.meta["val"].is_floating_point() for each in user.args)
    if target in _COPIES:
        return bool(user.meta["val"].is_floating_point())
    return target in _COMBINED


_MASKS: Mapping[str, Translation] = {
    **{f"aten.{name}.{kind}": compared for name in _COMPARISONS for kind in ("Scalar", "Tensor")},
    **dict.fromkeys(_COMBINED, combined),
}
TRANSLATIONS: Mapping[str, Translation] = {**_MASKS, **dict.fromkeys(_CHOOSING, chosen)}
