"""PyTorch's operators → operations of the graph. What has no translation stays PyTorch's, as a foreign node."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from math import prod
from typing import Any

import torch

from convwright import torch_api
from convwright.core.dtype import IN_PYTORCH
from convwright.core.epilogue import Epilogue
from convwright.core.kinds.copy import CopyProblem
from convwright.core.kinds.expression import Apply, Expression, Operand
from convwright.core.kinds.linear import LinearProblem
from convwright.core.kinds.pointwise import OPERAND_NAMES, PointwiseProblem
from convwright.core.kinds.pool import PoolProblem
from convwright.core.kinds.pool_window import Pooling
from convwright.core.problem import ConvProblem
from convwright.core.tensor_spec import TensorSpec
from convwright.core.window import all_sides, per_axis
from convwright.engine.export import expressions
from convwright.engine.export.builder import Builder, Unknown
from convwright.engine.export.foreign import written
from convwright.errors import ConvwrightError
from convwright.graph.layouts import dense
from convwright.graph.operations import Foreign, Join

# From a node of PyTorch's to nodes of the graph; False where it is one that only PyTorch's operator computes.
Translation = Callable[[Builder, Any], bool]


def arguments(node: Any) -> dict[str, Any]:
    """A node's arguments by name, with PyTorch's defaults."""
    found: dict[str, Any] = {}
    for place, argument in enumerate(torch_api.schema_of(node.target).arguments):
        if place < len(node.args):
            found[argument.name] = node.args[place]
        elif argument.name in node.kwargs:
            found[argument.name] = node.kwargs[argument.name]
        else:
            found[argument.name] = argument.default_value
    return found


def convolution(builder: Builder, node: Any) -> bool:
    given = arguments(node)
    x, w = builder.value(given["input"]), builder.value(given["weight"])
    x_spec, w_spec = builder.spec(x), builder.spec(w)
    rank, bias = len(w_spec.shape) - 2, given["bias"]
    if len(x_spec.shape) != rank + 2 or w not in builder.held:
        return False  # an image without a batch, or a weight that is computed
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
    if len(x_spec.shape) != len(w_spec.shape) or w not in builder.held:
        return False
    problem = ConvProblem.of_transposed(
        x_spec.shape, w_spec.shape, stride=given["stride"], padding=given["padding"],
        output_padding=given["output_padding"], groups=given["groups"], dilation=given["dilation"], dtype=x_spec.dtype,
    )  # fmt: skip
    if given["bias"] is None:
        return builder.is_(node, builder.compute(builder.name(node), problem, {"dy": x, "w": w}))
    sums = builder.compute(f"{builder.name(node)}_sums", problem, {"dy": x, "w": w})
    bias = builder.view(f"{builder.name(node)}_bias", builder.value(given["bias"]), _per_channel(problem.output))
    added = Apply("add", (Operand("a"), Operand("b")))
    return _pointwise(builder, node, added, {"a": sums, "b": bias}, problem.output)


def linear(builder: Builder, node: Any) -> bool:
    given = arguments(node)
    x, w, bias = builder.value(given["input"]), builder.value(given["weight"]), given["bias"]
    shape, (outputs, inputs) = builder.spec(x).shape, builder.spec(w).shape
    if w not in builder.held or not shape:
        return False
    rows = builder.view(f"{builder.name(node)}_rows", x, (prod(shape[:-1]), inputs))
    problem = LinearProblem.of(
        prod(shape[:-1]), inputs, outputs, dtype=builder.spec(x).dtype, epilogue=Epilogue(bias=bias is not None)
    )
    reads = {"x": rows, "w": w} | ({} if bias is None else {"bias": builder.value(bias)})
    if len(shape) == 2:
        return builder.is_(node, builder.compute(builder.name(node), problem, reads))
    made = builder.compute(f"{builder.name(node)}_sums", problem, reads)
    return builder.is_(node, builder.view(builder.name(node), made, (*shape[:-1], outputs)))


def batch_norm(builder: Builder, node: Any) -> bool:
    """As it computes when a model is evaluated: a factor and a number to add for each channel, in float32 at least."""
    given = arguments(node)
    x, names = builder.value(given["input"]), ("weight", "bias", "running_mean", "running_var")
    read = [None if given[name] is None else builder.value(given[name]) for name in names]
    if any(value is not None and value not in builder.held for value in read):
        return False
    weight, bias, mean, var = (None if value is None else builder.held[value].double() for value in read)
    assert mean is not None
    assert var is not None
    scale = torch.rsqrt(var + given["eps"]) * (1.0 if weight is None else weight)
    shift = (0.0 if bias is None else bias) - mean * scale
    result, dtype = builder.spec(x), torch.float64 if builder.spec(x).dtype == "fp64" else torch.float32
    shape = _per_channel(result)
    scaled = builder.made(f"{builder.name(node)}.scale", scale.to(dtype).reshape(shape))
    shifted = builder.made(f"{builder.name(node)}.shift", shift.to(dtype).reshape(shape))
    tree = Apply("add", (Apply("mul", (Operand("a"), Operand("b"))), Operand("c")))
    # PyTorch's node gives a tuple, whose other members nobody reads when a model is evaluated.
    value = _computed(
        builder, builder.name(node), tree, {"a": x, "b": scaled, "c": shifted}, TensorSpec(result.shape, result.dtype)
    )
    builder.has_parts(node, (value,))
    return True


def _per_channel(spec: TensorSpec) -> tuple[int, ...]:
    return (1, spec.shape[1], *(1 for _ in spec.shape[2:]))


def pointwise(builder: Builder, node: Any) -> bool:
    """An operator of which each element of the output is computed from single elements of its operands."""
    operands: dict[str, str] = {}

    def expression(argument: Any) -> Any:
        if not isinstance(argument, torch.fx.Node):
            return argument
        value = builder.value(argument)
        known = next((name for name, read in operands.items() if read == value), None)
        name = known or OPERAND_NAMES[len(operands)]
        operands[name] = value
        return Operand(name)

    args = [expression(argument) for argument in node.args]
    kwargs = {name: expression(argument) for name, argument in node.kwargs.items()}
    try:
        tree = expressions.BUILDERS[str(node.target)](*args, **kwargs)
    except ConvwrightError:
        return False
    result = builder.result(node)
    if tree is None or not operands or result.dtype not in IN_PYTORCH:
        return False
    return _pointwise(builder, node, tree, operands, result)


def _pointwise(
    builder: Builder, node: Any, tree: Expression, operands: Mapping[str, str], y: TensorSpec, row: tuple[int, ...] = ()
) -> bool:
    return builder.is_(node, _computed(builder, builder.name(node), tree, operands, y, row))


def _computed(
    builder: Builder, name: str, tree: Expression, operands: Mapping[str, str], y: TensorSpec, row: tuple[int, ...] = ()
) -> str:
    """An expression over values, which are given as many dimensions as the output has."""
    rank, reads = len(y.shape), dict[str, str]()
    for operand, value in operands.items():
        shape = builder.spec(value).shape
        reads[operand] = builder.view(f"{name}_{operand}", value, (*(1,) * (rank - len(shape)), *shape))
    inputs = tuple((operand, dense(builder.spec(value))) for operand, value in reads.items())
    problem = PointwiseProblem(tree, inputs, TensorSpec(y.shape, y.dtype), row)
    return builder.compute(name, problem, {operand: reads[operand] for operand, _ in problem.inputs})


def mean(builder: Builder, node: Any) -> bool:
    given = arguments(node)
    x = builder.value(given["self"])
    spec = builder.spec(x)
    if not given["dim"] or given.get("dtype") is not None:
        return False
    row = tuple(sorted(dim % len(spec.shape) for dim in given["dim"]))
    return _reduced(builder, node, "mean", x, row)


def global_average(builder: Builder, node: Any) -> bool:
    """Adaptive average pooling to one element."""
    given = arguments(node)
    x = builder.value(given["self"])
    spec, sizes = builder.spec(x), given["output_size"]
    if any(size != 1 for size in sizes):
        return False
    return _reduced(builder, node, "mean", x, tuple(range(len(spec.shape) - len(sizes), len(spec.shape))))


def maximum(builder: Builder, node: Any) -> bool:
    value = _pooled(builder, node, Pooling.MAX)
    return value is not None and builder.is_(node, value)


def maximum_with_indices(builder: Builder, node: Any) -> bool:
    """The same where nothing reads the places of the maxima."""
    if any(user.target is not operator.getitem or user.args[1] != 0 for user in node.users):
        return False
    value = _pooled(builder, node, Pooling.MAX)
    if value is not None:
        builder.has_parts(node, (value,))
    return value is not None


def average(builder: Builder, node: Any) -> bool:
    value = _pooled(builder, node, Pooling.AVG)
    return value is not None and builder.is_(node, value)


def _pooled(builder: Builder, node: Any, pooling: Pooling) -> str | None:
    """The value that pooling computes; None where no problem describes it."""
    given = arguments(node)
    x = builder.value(given["self"])
    spec, rank = builder.spec(x), 3 if "3d" in str(node.target) else 2 if "2d" in str(node.target) else 1
    if len(spec.shape) != rank + 2 or spec.dtype not in IN_PYTORCH or (given.get("divisor_override") or 1) < 1:
        return None  # an image without a batch, integers, or a sum that changes its sign
    problem = PoolProblem.of(
        pooling, spec.shape, given["kernel_size"], stride=given["stride"] or None, padding=given["padding"],
        dilation=given.get("dilation", 1), ceil=given["ceil_mode"],
        includes_padding=given.get("count_include_pad", True), divisor=given.get("divisor_override"), dtype=spec.dtype,
    )  # fmt: skip
    return builder.compute(builder.name(node), problem, {"x": x})


def _reduced(builder: Builder, node: Any, reduction: str, x: str, row: tuple[int, ...]) -> bool:
    spec, result = builder.spec(x), builder.result(node)
    kept = tuple(1 if dim in row else size for dim, size in enumerate(spec.shape))
    if prod(spec.shape[dim] for dim in row) < 2:
        return builder.is_(node, builder.view(builder.name(node), x, result.shape))
    name = builder.name(node) if kept == result.shape else f"{builder.name(node)}_kept"
    tree = Apply(reduction, (Operand("a"),))
    made = _computed(builder, name, tree, {"a": x}, TensorSpec(kept, result.dtype), row)
    return builder.is_(node, builder.view(builder.name(node), made, result.shape))


def softmax(builder: Builder, node: Any) -> bool:
    given = arguments(node)
    x = builder.value(given["self"])
    spec = builder.spec(x)
    row = (given["dim"] % len(spec.shape),)
    if builder.result(node).dtype != spec.dtype or spec.shape[row[0]] < 2:
        return False
    a = Operand("a")
    powers = Apply("exp", (Apply("sub", (a, Apply("max", (a,)))),))
    return _pointwise(builder, node, Apply("div", (powers, Apply("sum", (powers,)))), {"a": x}, spec, row)


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
    """Other sizes for the same elements in the same order."""
    value, result = builder.value(node.args[0]), builder.result(node)
    return builder.is_(node, builder.view(builder.name(node), value, result.shape))


def same(builder: Builder, node: Any) -> bool:
    """What gives the elements that it is given, in another dtype at most."""
    value, result = builder.value(node.args[0]), builder.result(node)
    if builder.spec(value).dtype is result.dtype:
        return builder.is_(node, value)
    problem = CopyProblem(dense(builder.spec(value)), result)
    return builder.is_(node, builder.compute(builder.name(node), problem, {"x": value}))


def part(builder: Builder, node: Any) -> bool:
    whole, place = node.args
    if not builder.part(node, whole, place):
        raise Unknown(f"{whole} has no part {place} that is a tensor")
    return True


def foreign(builder: Builder, node: Any) -> None:
    """A node that runs PyTorch's own operator."""
    if not isinstance(node.target, torch_api.Operator) or node.target.namespace != "aten":
        raise Unknown("it is no operator of PyTorch's own")
    read: dict[str, int] = {}

    def place_of(argument: Any) -> int | None:
        return read.setdefault(builder.value(argument), len(read)) if isinstance(argument, torch.fx.Node) else None

    text = written(node.args, dict(node.kwargs), place_of)
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
    """Concatenation of what is computed; PyTorch's promotes dtypes and skips what is empty, which stays with it."""
    given = arguments(node)
    values = [builder.value(each) for each in given["tensors"]]
    inputs, result = tuple(dense(builder.spec(value)) for value in values), builder.result(node)
    plain = all(spec.dtype is result.dtype and len(spec.shape) == len(result.shape) for spec in inputs)
    if not plain or 0 in result.shape or builder.held.keys() & set(values):
        return False
    operation = Join(inputs, dense(result), given["dim"] % len(result.shape))
    reads = {f"x{place}": value for place, value in enumerate(values)}
    return builder.is_(node, builder.compute(builder.name(node), operation, reads))


_VIEWS = ("view.default", "reshape.default", "unsafe_view.default", "_unsafe_view.default", "flatten.using_ints",
          "unsqueeze.default", "squeeze.default", "squeeze.dim", "squeeze.dims")  # fmt: skip
_SAME = ("clone.default", "alias.default", "detach.default", "contiguous.default", "dropout.default",
         "_to_copy.default", "to.dtype", "lift_fresh_copy.default")  # fmt: skip
_FORWARD = tuple(f"conv{rank}d.{overload}" for rank in (1, 2, 3) for overload in ("default", "padding"))
TRANSLATIONS: Mapping[str, Translation] = {
    **dict.fromkeys((f"aten.{name}" for name in _FORWARD), convolution),
    "aten.conv_transpose1d.default": transposed_convolution,
    **dict.fromkeys((f"aten.conv_transpose{rank}d.input" for rank in (2, 3)), transposed_convolution),
    "aten.linear.default": linear, "aten.cat.default": joined,
    "aten._native_batch_norm_legit_no_training.default": batch_norm,
    "aten.mean.dim": mean,
    **dict.fromkeys((f"aten.adaptive_avg_pool{rank}d.default" for rank in (1, 2, 3)), global_average),
    **dict.fromkeys((f"aten.max_pool{rank}d.default" for rank in (1, 2, 3)), maximum),
    **dict.fromkeys((f"aten.max_pool{rank}d_with_indices.default" for rank in (1, 2, 3)), maximum_with_indices),
    **dict.fromkeys((f"aten.avg_pool{rank}d.default" for rank in (1, 2, 3)), average),
    "aten.softmax.int": softmax, "aten._softmax.default": softmax,
    "aten.pad.default": padding, "aten.constant_pad_nd.default": padding,
    **dict.fromkeys((f"aten.{name}" for name in _VIEWS), view),
    **dict.fromkeys((f"aten.{name}" for name in _SAME), same),
    **dict.fromkeys(expressions.BUILDERS, pointwise),
    str(operator.getitem): part,
}  # fmt: skip
