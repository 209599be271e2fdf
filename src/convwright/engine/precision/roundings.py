"""The outputs of a lowered network if only roundings err and everything else is float64."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import torch
from torch import Tensor

from convwright.core.dtype import DType
from convwright.engine.network import Network
from convwright.engine.reference import results
from convwright.graph.graph import Graph, Node
from convwright.tensors import torch_dtype

# Results in these types are rounded when stored. fp32 results count as exact.
_ROUNDED = (DType.FP16, DType.BF16)
# TF32 has 10 mantissa bits, 13 fewer than fp32.
_LOST_BITS = 13


def rounded_outputs(
    network: Network,
    inputs: Sequence[Tensor],
    *,
    tf32: Collection[str] = (),
    exact: Mapping[str, Tensor] | None = None,
    of: Graph | None = None,
) -> tuple[Tensor, ...]:
    """The outputs in float64, with each result rounded to its stored type, and operands of the nodes ``tf32`` to TF32.
    ``exact`` are values of the graph ``of``: nodes that it shares, with the same inputs, are not computed
    again."""
    graph, known = network.graph, {name: tensor.double() for name, tensor in network.constants.items()}
    known |= {name: tensor.double() for name, tensor in zip(graph.inputs, inputs, strict=True)}
    unchanged, same = set[Node]() if of is None else set(of.nodes), {*graph.inputs, *graph.constants}
    with torch.no_grad():
        for node in graph.nodes:
            if exact is not None and node in unchanged and node.name not in tf32 and same.issuperset(node.sources):
                same.update(node.writes)
                known |= {value: exact[value] for value in node.writes}
                continue
            read = {value: _as_tf32(known[value]) for value in node.sources} if node.name in tf32 else known
            known |= {value: _rounded(made, value, node, graph) for value, made in results(node, read).items()}
    return tuple(known[name] for name in graph.outputs)


def _rounded(result: Tensor, value: str, node: Node, graph: Graph) -> Tensor:
    """A result as it is stored. PyTorch's operators first round to the widest type that they read."""
    promoted = min((graph.values[each].dtype for each in node.sources), key=lambda each: each.roundoff)
    for dtype in (promoted, graph.values[value].dtype):
        if dtype in _ROUNDED:
            result = result.to(torch_dtype(dtype))
    return result.double()


def _as_tf32(tensor: Tensor) -> Tensor:
    """Rounded to TF32, ties away from zero, as tensor cores read it.

    >>> _as_tf32(torch.tensor([1.0 + 2**-11, 1.0 + 2**-12, -3.0])).tolist()
    [1.0009765625, 1.0, -3.0]
    """
    bits = tensor.float().contiguous().view(torch.int32) + (1 << _LOST_BITS - 1)
    return (bits & -(1 << _LOST_BITS)).view(torch.float32).double()
