"""PyTorch's operators as operations of the graph. One without a translation becomes a foreign node."""

from __future__ import annotations

import operator
from collections.abc import Mapping
from math import prod
from typing import Any

import torch

from convwright import torch_api
from convwright.core.dtype import DType
from convwright.core.epilogue import Epilogue
from convwright.core.kinds.copy import CopyProblem
from convwright.core.kinds.expression import Apply, Constant, Expression, Operand, names
from convwright.core.kinds.linear import LinearProblem
from convwright.core.problem import ConvProblem
from convwright.core.tensor_spec import TensorSpec
from convwright.core.window import all_sides, per_axis
from convwright.engine.export import elementwise, masks, parts, pools, resizes, rows
from convwright.engine.export.arguments import arguments
from convwright.engine.export.builder import Builder, Translation, Unknown, per_channel
from convwright.engine.export.foreign import written
from convwright.engine.export.order import Order, after, in_order
from convwright.graph.layouts import dense
from convwright.graph.operations import Foreign, Join

# Operators that read the dtype and the shape of a tensor, and not its numbers. Larger results are made in each run.
_BY_SHAPE = frozenset(f"aten.{name}.default" for name in ("new_zeros", "new_ones", "new_full"))
_MOST_KNOWN = 1 << 20


def convolution(builder: Builder, node: Any) -> bool:
    given = arguments(node)
    x, w = builder.value(given["input"]), builder.value(given["weight"])
    x_spec, w_spec = builder.spec(x), builder.spec(w)
    rank, bias = len(w_spec.shape) - 2, given["bias"]
    if len(x_spec.shape) != rank + 2 or not builder.is_constant(w):
        return False  # an unbatched image, or a computed weight
    stride, dilation = per_axis("stride", given["stride"], rank), per_axis("dilation", given["dilation"], rank)
    problem = ConvProblem.of_specs(
        TensorSpec(x_spec.shape, x_spec.dtype), w_spec, stride=stride,
        padding=all_sides(given["padding"], w_spec.shape[2:], stride, dilation), dilation=dilation,
        groups=given["groups"], epilogue=Epilogue(bias=bias is not None),
    )  # fmt: skip
    reads = {"x": x, "w": w} | ({} if bias is None else {"bias": builder.value(bias)})
    return builder.is_(node, builder.compute(builder.name(node), problem, reads))


def transposed_convolution(builder: Builder, node: Any) -> bool:
    given = arguments(node)
    x, w = builder.value(given["input"]), builder.value(given["weight"])
    x_spec, w_spec = builder.spec(x), builder.spec(w)
    if len(x_spec.shape) != len(w_spec.shape) or not builder.is_constant(w):
        return False
    problem = ConvProblem.of_transposed(
        x_spec.shape, w_spec.shape, stride=given["stride"], padding=given["padding"],
        output_padding=given["output_padding"], groups=given["groups"], dilation=given["dilation"], dtype=x_spec.dtype,
    )  # fmt: skip
    if given["bias"] is None:
        return builder.is_(node, builder.compute(builder.name(node), problem, {"dy": x, "w": w}))
    sums = builder.compute(f"{builder.name(node)}_sums", problem, {"dy": x, "w": w})
    bias = builder.view(f"{builder.name(node)}_bias", builder.value(given["bias"]), per_channel(problem.output))
    tree, operands = Apply("add", (Operand("a"), Operand("b"))), {"a": sums, "b": bias}
    return builder.is_(node, builder.compute_expression(builder.name(node), tree, operands, problem.output))


def linear(builder: Builder, node: Any) -> bool:
    given = arguments(node)
    (x, order), w, bias = builder.permuted(given["input"]), builder.value(given["weight"]), given["bias"]
    if not builder.is_constant(w) or not order:
        return False
    reads = {"x": x, "w": w} | ({} if bias is None else {"bias": builder.value(bias)})
    if len(order) > 2 and (order[0], order[-1]) == (0, 1):
        return _pixelwise(builder, node, reads, order)
    x = builder.value(given["input"])
    shape, (outputs, inputs) = builder.spec(x).shape, builder.spec(w).shape
    reads["x"] = builder.view(f"{builder.name(node)}_rows", x, (prod(shape[:-1]), inputs))
    problem = LinearProblem.of(
        prod(shape[:-1]), inputs, outputs, dtype=builder.spec(x).dtype, epilogue=Epilogue(bias=bias is not None)
    )
    if len(shape) == 2:
        return builder.is_(node, builder.compute(builder.name(node), problem, reads))
    made = builder.compute(f"{builder.name(node)}_sums", problem, reads)
    return builder.is_(node, builder.view(builder.name(node), made, (*shape[:-1], outputs)))


def _pixelwise(builder: Builder, node: Any, reads: dict[str, str], order: Order) -> bool:
    """A matrix product over the channels of each pixel: a 1x1 convolution."""
    x, w = builder.spec(reads["x"]), builder.spec(reads["w"])
    if not 3 <= len(x.shape) <= 5:
        return False
    rank = len(x.shape) - 2
    ones = (1,) * rank
    weight = builder.view(f"{builder.name(node)}_taps", reads["w"], (*w.shape, *ones))
    problem = ConvProblem.of_specs(
        TensorSpec(x.shape, x.dtype), builder.spec(weight), stride=ones, padding=((0, 0),) * rank, dilation=ones,
        epilogue=Epilogue(bias="bias" in reads),
    )  # fmt: skip
    made = builder.compute(builder.name(node), problem, reads | {"w": weight})
    return builder.is_permuted(node, made, order)


_OF_BATCH_NORM = ("weight", "bias", "running_mean", "running_var")


def batch_norm(builder: Builder, node: Any) -> bool:
    """Batch norm in evaluation mode: a scale and a shift for each channel, at least in float32."""
    given, name, roles = arguments(node), builder.name(node), dict(zip("abcd", _OF_BATCH_NORM, strict=True))
    x = builder.value(given["input"])
    y = builder.spec(x)
    read = {role: builder.value(given[key]) for role, key in roles.items() if given[key] is not None}
    if not all(map(builder.is_constant, read.values())):
        return False
    a, b, c, d = map(Operand, roles)
    spec = TensorSpec((y.shape[1],), DType.FP64 if y.dtype is DType.FP64 else DType.FP32)

    def computed(what: str, tree: Expression) -> str:
        operands = {operand: read[operand] for operand in names(tree)}
        return builder.view(
            f"{name}.{what}", builder.compute_expression(f"{name}.{what}s", tree, operands, spec), per_channel(y)
        )

    factor: Expression = Apply("rsqrt", (Apply("add", (d, Constant(given["eps"]))),))
    factor = Apply("mul", (factor, a)) if "a" in read else factor
    centre: Expression = Apply("neg", (Apply("mul", (c, factor)),))
    centre = Apply("add", (b, centre)) if "b" in read else centre
    operands = {"a": x, "b": computed("scale", factor), "c": computed("shift", centre)}
    tree = Apply("add", (Apply("mul", (a, b)), c))
    value = builder.compute_expression(name, tree, operands, TensorSpec(y.shape, y.dtype))
    # PyTorch's node gives a tuple; in evaluation mode nobody reads its other members.
    return builder.has_parts(node, [(value, in_order(len(y.shape)))])


def padding(builder: Builder, node: Any) -> bool:
    given = arguments(node)
    x = builder.value(given["self"])
    if given.get("mode", "constant") != "constant" or given.get("value") not in (None, 0, 0.0):
        return False
    spec, sides = builder.spec(x), given["pad"]
    pairs = [(sides[place], sides[place + 1]) for place in range(0, len(sides), 2)][::-1]
    margins = (*((0, 0),) * (len(spec.shape) - len(pairs)), *pairs)
    problem = CopyProblem(dense(spec), builder.result(node), margins)
    return builder.is_(node, builder.compute(builder.name(node), problem, {"x": x}))


def view(builder: Builder, node: Any) -> bool:
    """A reshape: the same elements in the same order."""
    value, result = builder.value(node.args[0]), builder.result(node)
    return builder.is_(node, builder.view(builder.name(node), value, result.shape))


def same(builder: Builder, node: Any) -> bool:
    """The same elements, possibly in another dtype."""
    (value, order), result = builder.permuted(node.args[0]), builder.result(node)
    spec = dense(builder.spec(value))
    if spec.dtype is not result.dtype:
        problem = CopyProblem(spec, TensorSpec(spec.shape, result.dtype))
        value = builder.compute(builder.name(node), problem, {"x": value})
    return builder.is_permuted(node, value, order)


def permute(builder: Builder, node: Any) -> bool:
    """Permuted dimensions: only recorded, and copied if an operation needs another order."""
    given = arguments(node)
    value, order = builder.permuted(given["self"])
    rank = len(order)
    if "dims" in given:
        then = tuple(dim % rank for dim in given["dims"])
    else:
        first, second = given["dim0"] % rank, given["dim1"] % rank
        then = tuple({first: second, second: first}.get(dim, dim) for dim in range(rank))
    return builder.is_permuted(node, value, after(order, then))


def part(builder: Builder, node: Any) -> bool:
    whole, place = node.args
    if not builder.part(node, whole, place):
        raise Unknown(f"part {place} of {whole} is not a tensor")
    return True


def is_known(builder: Builder, node: Any) -> bool:
    """Whether the result depends on no input and no weight."""
    made = node.meta.get("val")
    if not isinstance(made, torch.Tensor):
        return False
    by_shape = str(node.target) in _BY_SHAPE and made.numel() <= _MOST_KNOWN
    return by_shape or all(map(builder.is_known, node.all_input_nodes))


def draws(node: Any) -> bool:
    """Whether the operator draws random numbers, as dropout does in training."""
    if not isinstance(node.target, torch_api.Operator):
        return False
    given = arguments(node)
    switches = [given[name] for name in ("train", "training", "dropout_p") if name in given]
    if "dropout" in str(node.target) and "p" in given:
        switches.append(given["p"])
    is_seeded = torch.Tag.nondeterministic_seeded in node.target.tags or "dropout_p" in given
    return is_seeded and all(switches)


def computed_now(builder: Builder, node: Any) -> None:
    """Compute an operator whose arguments are all known now, but for tensors of which only the shape counts. The
    resulting constant may have any dtype."""

    def tensor(given: Any) -> torch.Tensor:
        known, fake = builder.tensor(given), given.meta["val"]
        return torch.empty((), dtype=fake.dtype, device=fake.device).expand(fake.shape) if known is None else known

    args, kwargs = torch.fx.node.map_arg((node.args, node.kwargs), tensor)
    made = node.target(*args, **kwargs)
    if not isinstance(made, torch.Tensor):
        raise Unknown(f"it gives {type(made).__name__}, which is not a tensor")
    builder.computed(node, made)


def foreign(builder: Builder, node: Any) -> None:
    """Add a node that runs PyTorch's own operator."""
    if not isinstance(node.target, torch_api.Operator) or node.target.namespace != "aten":
        raise Unknown("it is not one of PyTorch's own operators")
    args, kwargs = torch.fx.node.map_arg((node.args, node.kwargs), lambda each: builder.number(each, each))
    read: dict[str, int] = {}

    def place_of(argument: Any) -> int | None:
        return read.setdefault(builder.value(argument), len(read)) if isinstance(argument, torch.fx.Node) else None

    text = written(args, dict(kwargs), place_of)
    if not read:
        raise Unknown("it reads no tensor that a network holds")
    inputs = tuple(dense(builder.spec(value)) for value in read)
    reads = {f"x{place}": value for place, value in enumerate(read)}
    results = builder.results(node)
    operation = Foreign(str(node.target), text, inputs, results)
    if isinstance(node.meta["val"], tuple | list):
        names = tuple(f"{builder.name(node)}_{place}" for place in range(len(results)))
        builder.compute_all(node, operation, reads, names)
    else:
        builder.is_(node, builder.compute(builder.name(node), operation, reads))


def joined(builder: Builder, node: Any) -> bool:
    """Concatenation of computed values. Promotion of dtypes and empty tensors are left to PyTorch."""
    given = arguments(node)
    return _join(builder, node, [builder.value(each) for each in given["tensors"]], given["dim"])


def stacked(builder: Builder, node: Any) -> bool:
    """Concatenation along a new dimension."""
    given, rank = arguments(node), len(builder.result(node).shape)
    dim, values = given["dim"] % rank, [builder.value(each) for each in given["tensors"]]
    shapes = [builder.spec(value).shape for value in values]
    views = [
        builder.view(f"{builder.name(node)}_{place}", value, (*shape[:dim], 1, *shape[dim:]))
        for place, (value, shape) in enumerate(zip(values, shapes, strict=True))
    ]
    return _join(builder, node, views, dim)


def _join(builder: Builder, node: Any, values: list[str], dim: int) -> bool:
    inputs, result = tuple(dense(builder.spec(value)) for value in values), builder.result(node)
    plain = all(spec.dtype is result.dtype and len(spec.shape) == len(result.shape) for spec in inputs)
    if not plain or 0 in result.shape or any(map(builder.is_constant, values)):
        return False
    operation = Join(inputs, dense(result), dim % len(result.shape))
    reads = {f"x{place}": value for place, value in enumerate(values)}
    return builder.is_(node, builder.compute(builder.name(node), operation, reads))


_VIEWS = ("view.default", "reshape.default", "unsafe_view.default", "_unsafe_view.default", "flatten.using_ints",
          "unsqueeze.default", "squeeze.default", "squeeze.dim", "squeeze.dims")  # fmt: skip
_SAME = ("clone.default", "alias.default", "detach.default", "contiguous.default", "dropout.default",
         "_to_copy.default", "to.dtype", "type_as.default", "lift_fresh_copy.default")  # fmt: skip
_FORWARD = tuple(f"conv{rank}d.{overload}" for rank in (1, 2, 3) for overload in ("default", "padding"))
TRANSLATIONS: Mapping[str, Translation] = {
    **dict.fromkeys((f"aten.{name}" for name in _FORWARD), convolution),
    "aten.conv_transpose1d.default": transposed_convolution,
    **dict.fromkeys((f"aten.conv_transpose{rank}d.input" for rank in (2, 3)), transposed_convolution),
    "aten.linear.default": linear, "aten.cat.default": joined, "aten.stack.default": stacked,
    "aten._native_batch_norm_legit_no_training.default": batch_norm,
    **rows.TRANSLATIONS, **parts.TRANSLATIONS, **resizes.TRANSLATIONS, **pools.TRANSLATIONS,
    "aten.permute.default": permute, "aten.transpose.int": permute,
    "aten.pad.default": padding, "aten.constant_pad_nd.default": padding,
    **dict.fromkeys((f"aten.{name}" for name in _VIEWS), view),
    **dict.fromkeys((f"aten.{name}" for name in _SAME), same),
    **elementwise.TRANSLATIONS, **masks.TRANSLATIONS,
    str(operator.getitem): part,
}  # fmt: skip
