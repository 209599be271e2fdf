"""Element-wise operators as expressions over the values of a graph."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from convwright.core.dtype import IN_PYTORCH, DType
from convwright.core.kinds.expression import Operand
from convwright.core.kinds.pointwise import OPERAND_NAMES
from convwright.core.tensor_spec import TensorSpec
from convwright.engine.export import expressions
from convwright.engine.export.builder import Builder, Translation
from convwright.engine.export.operand_order import in_order_of, shared_order
from convwright.engine.export.order import original
from convwright.errors import ConvwrightError


def pointwise(builder: Builder, node: Any) -> bool:
    """An element-wise operator."""
    return elementwise(builder, node, expressions.BUILDERS[str(node.target)], builder.result(node).dtype)


def elementwise(builder: Builder, node: Any, build: expressions.Builder, dtype: DType) -> bool:
    """A node as the expression that ``build`` makes of its arguments, with a result of ``dtype``."""
    shape = tuple(map(int, node.meta["val"].shape))
    tensors = [each for each in (*node.args, *node.kwargs.values()) if isinstance(each, torch.fx.Node)]
    order = shared_order(builder, tensors, len(shape))
    operands: dict[str, str] = {}

    def expression(argument: Any) -> Any:
        if not isinstance(argument, torch.fx.Node):
            return argument
        value = in_order_of(builder, argument, order)
        known = next((name for name, read in operands.items() if read == value), None)
        name = known or OPERAND_NAMES[len(operands)]
        operands[name] = value
        return Operand(name)

    args = [expression(argument) for argument in node.args]
    kwargs = {name: expression(argument) for name, argument in node.kwargs.items()}
    try:
        tree = build(*args, **kwargs)
    except ConvwrightError:
        return False
    if tree is None or not operands or dtype not in IN_PYTORCH:
        return False
    y = TensorSpec(original(shape, order), dtype)
    return builder.is_permuted(node, builder.compute_expression(builder.name(node), tree, operands, y), order)


TRANSLATIONS: Mapping[str, Translation] = dict.fromkeys(expressions.BUILDERS, pointwise)
