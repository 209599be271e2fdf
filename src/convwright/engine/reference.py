"""What a network computes, in float64 and with PyTorch's own operators, node by node."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor
from torch.nn import functional as F

from convwright.backends.torch_native.own import FORWARD
from convwright.core.direction import Direction
from convwright.core.kinds.copy import CopyProblem
from convwright.core.kinds.linear import LinearProblem
from convwright.core.kinds.pointwise import PointwiseProblem
from convwright.core.problem import ConvProblem
from convwright.engine.export.foreign import compute
from convwright.engine.network import Network
from convwright.errors import Refused
from convwright.graph.graph import Node
from convwright.graph.operations import Foreign, Operation, View
from convwright.tensors import activate
from convwright.torch_operators import compiled

_TRANSPOSED = {1: F.conv_transpose1d, 2: F.conv_transpose2d, 3: F.conv_transpose3d}


def reference(network: Network, inputs: Sequence[Tensor]) -> tuple[Tensor, ...]:
    """The outputs in float64."""
    return tuple(values(network, inputs)[name] for name in network.graph.outputs)


def values(network: Network, inputs: Sequence[Tensor]) -> dict[str, Tensor]:
    """All values in float64, by name."""
    graph = network.graph
    known = {name: tensor.double() for name, tensor in network.constants.items()}
    known |= {name: tensor.double() for name, tensor in zip(graph.inputs, inputs, strict=True)}
    with torch.no_grad():
        for node in graph.nodes:
            known |= results(node, known)
    return known


def results(node: Node, known: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """What a node writes, by value."""
    operands = {role: known[value] for role, value in node.reads}
    return dict(zip(node.writes, evaluated(node.operation, operands), strict=True))


def evaluated(operation: Operation, operands: Mapping[str, Tensor]) -> tuple[Tensor, ...]:
    """The results of an operation, in the precision of its operands."""
    if isinstance(operation, Foreign):
        return compute(operation, [operands[f"x{place}"] for place in range(len(operation.inputs))])
    if isinstance(operation, View):
        return (operands["x"].reshape(operation.y.shape),)
    if isinstance(operation, PointwiseProblem):
        made = compiled(operation.expression, torch.float64, operation.row)(operands)
        return (made.expand(operation.y.shape),)
    if isinstance(operation, CopyProblem):
        sides = [side for pair in reversed(operation.margins) for side in pair]
        return (F.pad(operands["x"], sides),)
    if isinstance(operation, LinearProblem):
        sums = operands["x"] @ operands["w"].T
        added = sum((operands[role] for role in ("residual", "bias") if role in operands), start=sums)
        return (activate(added, operation.epilogue.activation),)
    if isinstance(operation, ConvProblem):
        return (_convolution(operation, operands),)
    raise Refused(f"a network has no operation of the kind {operation.kind}")


def _convolution(problem: ConvProblem, operands: Mapping[str, Tensor]) -> Tensor:
    w, per_channel = operands["w"], (-1, *(1,) * problem.rank)
    if problem.direction is Direction.BACKWARD_DATA:
        padding = tuple(low for low, _ in problem.padding)
        added = [
            axis.size - ((axis.out - 1) * axis.stride + axis.reach - low - low)
            for axis, low in zip(problem.axes, padding, strict=True)
        ]
        return _TRANSPOSED[problem.rank](
            operands["dy"], w, None, problem.stride, padding, added, problem.groups, problem.dilation
        )
    x = F.pad(operands["x"], [side for pair in reversed(problem.padding) for side in pair])
    y = FORWARD[problem.rank](x, w, None, problem.stride, 0, problem.dilation, problem.groups)
    if "scale" in operands:
        y = y * operands["scale"].view(per_channel)
    if "residual" in operands:
        y = y + operands["residual"]
    if "bias" in operands:
        y = y + operands["bias"].view(per_channel)
    return activate(y, problem.epilogue.activation)
