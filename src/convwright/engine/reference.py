"""The float64 reference of a network: PyTorch's own operators, node by node."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor
from torch.nn import functional as F

from convwright.core.direction import Role
from convwright.core.kinds.copy import CopyProblem
from convwright.core.kinds.linear import LinearProblem
from convwright.core.kinds.pointwise import PointwiseProblem
from convwright.core.kinds.pool import PoolProblem
from convwright.core.kinds.resize import ResizeProblem
from convwright.core.problem import ConvProblem
from convwright.engine.export.foreign import compute
from convwright.engine.network import Network
from convwright.errors import Refused
from convwright.graph.graph import Node
from convwright.graph.operations import Foreign, Join, Operation, View
from convwright.measuring.checking.reference import whole_convolution
from convwright.measuring.checking.resizing import resized
from convwright.tensors import activate
from convwright.torch_operators import computing
from convwright.torch_pooling import pooled


@torch.no_grad()
def reference(network: Network, inputs: Sequence[Tensor]) -> tuple[Tensor, ...]:
    """The outputs in float64. Each value is dropped after its last reader."""
    graph = network.graph
    last = {value: number for number, node in enumerate(graph.nodes) for value in (*node.writes, *node.sources)}
    last |= dict.fromkeys(graph.outputs, len(graph.nodes))
    known = {name: tensor.double() for name, tensor in network.constants.items()}
    known |= {name: tensor.double() for name, tensor in zip(graph.inputs, inputs, strict=True)}
    for number, node in enumerate(graph.nodes):
        known |= results(node, known)
        for value in (*node.writes, *node.sources):
            if last[value] == number:
                del known[value]
    return tuple(known[name] for name in graph.outputs)


@torch.no_grad()
def values(network: Network, inputs: Sequence[Tensor]) -> dict[str, Tensor]:
    """All values in float64, by name."""
    known = {name: tensor.double() for name, tensor in network.constants.items()}
    known |= {name: tensor.double() for name, tensor in zip(network.graph.inputs, inputs, strict=True)}
    for node in network.graph.nodes:
        known |= results(node, known)
    return known


def results(node: Node, known: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The results of a node, by value."""
    operands = {role: known[value] for role, value in node.reads}
    return dict(zip(node.writes, evaluated(node.operation, operands), strict=True))


def evaluated(operation: Operation, operands: Mapping[str, Tensor]) -> tuple[Tensor, ...]:
    """The results of an operation in the precision of its operands."""
    if isinstance(operation, Foreign):
        return compute(operation, [operands[f"x{place}"] for place in range(len(operation.inputs))])
    if isinstance(operation, View):
        return (operands["x"].reshape(operation.y.shape),)
    if isinstance(operation, Join):
        return (torch.cat([operands[f"x{place}"] for place in range(len(operation.inputs))], operation.dim),)
    if isinstance(operation, PointwiseProblem):
        made = computing(operation, torch.float64)(operands)
        return (made.expand(operation.y.shape),)
    if isinstance(operation, CopyProblem):
        sides = [side for pair in reversed(operation.margins) for side in pair]
        return (F.pad(operands["x"], sides),)
    if isinstance(operation, PoolProblem):
        return (pooled(operation, operands["x"]),)
    if isinstance(operation, ResizeProblem):
        return (resized(operation, operands["x"]),)
    if isinstance(operation, LinearProblem):
        sums = operands["x"] @ operands["w"].T
        added = sum((operands[role] for role in ("residual", "bias") if role in operands), start=sums)
        return (activate(added, operation.epilogue.activation),)
    if isinstance(operation, ConvProblem):
        return (whole_convolution(operation, {Role(role): tensor for role, tensor in operands.items()}),)
    raise Refused(f"no reference exists for an operation of the kind {operation.kind}")
