"""Fold per-channel scales and shifts, such as batch norms, into the weights before them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

import torch
from torch import Tensor

from convwright.core.direction import Direction
from convwright.core.epilogue import Activation
from convwright.core.kinds.expression import Apply, Expression, Operand, names
from convwright.core.kinds.linear import LinearProblem
from convwright.core.kinds.pointwise import PointwiseProblem
from convwright.core.problem import ConvProblem
from convwright.engine.network import Network
from convwright.engine.passes.change import Changed
from convwright.graph.graph import Graph, Node
from convwright.tensors import spec_of, torch_dtype
from convwright.torch_operators import compiled

_MADE = ("weight", "bias")


def fold_scale(network: Network) -> Changed:
    """Fold per-channel scales and shifts into the convolution or matrix product before them that nothing else reads."""
    sentences = list[str]()
    while pairs := _pairs(network):
        network = _folded(network, pairs)
        sentences += [f"{after.name} is folded into the weights of {product.name}." for product, after in pairs]
    return Changed(network, tuple(sentences))


def _pairs(network: Network) -> list[tuple[Node, Node]]:
    """Products, each with the node after it that can be folded."""
    graph, readers, found = network.graph, network.graph.readers, list[tuple[Node, Node]]()
    for node in graph.nodes:
        if not _takes_factors(node, network):
            continue
        (value,) = node.writes
        after = readers.get(value, ())
        if len(after) == 1 and value not in graph.outputs and _channels_of(after[0], value, network) is not None:
            found.append((node, after[0]))
    return found


def _takes_factors(node: Node, network: Network) -> bool:
    problem = node.operation
    if isinstance(problem, ConvProblem):
        fits = problem.direction is Direction.FORWARD and not problem.dtype.narrow
    else:
        fits = isinstance(problem, LinearProblem)
    if not fits:
        return False
    assert isinstance(problem, ConvProblem | LinearProblem)
    epilogue, reads = problem.epilogue, dict(node.reads)
    is_bare = epilogue.activation is Activation.NONE and not (
        epilogue.residual or epilogue.scale or epilogue.accumulate
    )
    return is_bare and all(reads[role] in network.constants for role in ("w", "bias") if role in reads)


class _Affine(NamedTuple):
    """``scale * x + shift`` per channel, in float64."""

    scale: Tensor
    shift: Tensor


def _channels_of(node: Node, value: str, network: Network) -> _Affine | None:
    """The scale and shift that a node applies to the channels of ``value``; None if it does anything else."""
    problem = node.operation
    if (
        not isinstance(problem, PointwiseProblem)
        or problem.row
        or problem.y.dtype is not network.graph.values[value].dtype
    ):
        return None
    of = [role for role, read in node.reads if read == value]
    others = {role: network.constants.get(read) for role, read in node.reads if read != value}
    if len(of) != 1 or dict(problem.inputs)[of[0]].shape != problem.y.shape:
        return None
    channels = problem.y.shape[1]
    held = {role: _per_channel(tensor, channels) for role, tensor in others.items() if tensor is not None}
    per_channel = {role: tensor for role, tensor in held.items() if tensor is not None}
    if len(per_channel) != len(others) or not _is_affine(problem.expression, of[0]):
        return None
    at = [_at(problem.expression, of[0], number, per_channel, channels) for number in (0.0, 1.0)]
    return _Affine(at[1] - at[0], at[0])


def _per_channel(tensor: Tensor, channels: int) -> Tensor | None:
    """A constant as one float64 number per channel; None if it differs within a channel."""
    if tensor.dim() < 2 or tensor.numel() != tensor.shape[1] or tensor.shape[1] not in (1, channels):
        return None
    return tensor.double().reshape(-1).expand(channels)


def _is_affine(tree: Expression, name: str) -> bool:
    """Whether an expression is a multiple of ``name`` plus terms that do not depend on it."""
    if name not in names(tree) or isinstance(tree, Operand):
        return True
    if not isinstance(tree, Apply):
        return False
    depending = [name in names(argument) for argument in tree.arguments]
    if tree.operator in ("add", "sub", "neg"):
        fits = True
    else:
        fits = (tree.operator == "mul" and sum(depending) == 1) or (tree.operator == "div" and not depending[1])
    return fits and all(_is_affine(argument, name) for argument in tree.arguments)


def _at(tree: Expression, name: str, number: float, others: Mapping[str, Tensor], channels: int) -> Tensor:
    given = torch.full((channels,), number, dtype=torch.float64, device=next((t.device for t in others.values()), None))
    result: Tensor = compiled(tree, torch.float64)({**others, name: given})
    return result.expand(channels)


def _folded(network: Network, pairs: Sequence[tuple[Node, Node]]) -> Network:
    """The network with new weights. The products write what the folded nodes wrote."""
    graph, made, products = network.graph, dict[str, Tensor](), dict[str, Node]()
    for product, after in pairs:
        problem, reads = product.operation, dict(product.reads)
        assert isinstance(problem, ConvProblem | LinearProblem)
        dtype, names = torch_dtype(problem.dtype), {each: f"{product.name}.{each} with {after.name}" for each in _MADE}
        weight, bias = _weights(network, product, after)
        made |= {names["weight"]: weight.to(dtype), names["bias"]: bias.to(dtype)}
        reads |= {"w": names["weight"], "bias": names["bias"]}
        folded = replace(problem, epilogue=replace(problem.epilogue, bias=True))
        products[after.name] = Node(product.name, folded, tuple(reads.items()), after.writes)
    gone = {product.name for product, _ in pairs}
    nodes = tuple(products.get(node.name, node) for node in graph.nodes if node.name not in gone)
    values = {**graph.values, **{name: spec_of(tensor) for name, tensor in made.items()}}
    constants = (*graph.constants, *made)
    return network.with_graph(Graph(values, nodes, graph.inputs, graph.outputs, constants).needed(), made)


def _weights(network: Network, product: Node, after: Node) -> tuple[Tensor, Tensor]:
    """The weight and bias of both nodes combined, in float64."""
    found, reads = _channels_of(after, product.writes[0], network), dict(product.reads)
    assert found is not None
    weight = network.constants[reads["w"]].double()
    scale, shift = (each.to(weight.device) for each in found)
    if "bias" in reads:
        shift = scale * network.constants[reads["bias"]].double() + shift
    return weight * scale.view(-1, *(1,) * (weight.dim() - 1)), shift
