"""A small graph: an input, a convolution, what is done to its output."""

from __future__ import annotations

from convwright.core.dtype import DType
from convwright.core.epilogue import Epilogue
from convwright.core.kinds.expression_text import parse
from convwright.core.kinds.pointwise import PointwiseProblem
from convwright.core.problem import ConvProblem
from convwright.core.tensor_spec import TensorSpec
from convwright.graph.graph import Graph, Node

SHAPE = (2, 4, 6, 6)


def image(channels: int = 4, size: int = 6, batch: int = 2) -> TensorSpec:
    return TensorSpec((batch, channels, size, size), DType.FP32)


def conv(name: str, x: str, *, epilogue: str = "none") -> Node:
    """A convolution that keeps its input's sizes, on constants w and bias."""
    problem = ConvProblem.of(SHAPE, (4, 4, 3, 3), padding=1, epilogue=Epilogue.parse(epilogue))
    reads = {"x": x, "w": "w"} | ({"bias": "bias"} if problem.epilogue.bias else {})
    return Node(name, problem, tuple(reads.items()), (name,))


def rows(name: str, text: str, row: tuple[int, ...] = (1,), groups: int = 1, **reads: str) -> Node:
    """An expression that reduces rows of images."""
    problem = PointwiseProblem(parse(text), tuple((role, image()) for role in reads), image(), row, groups)
    return Node(name, problem, tuple((role, reads[role]) for role, _ in problem.inputs), (name,))


def pointwise(name: str, text: str, shapes: dict[str, tuple[int, ...]] | None = None, **reads: str) -> Node:
    """An expression on values by the names of its operands, all of them images unless other shapes are given."""
    tree = parse(text)
    specs = {role: TensorSpec((shapes or {}).get(role, SHAPE), DType.FP32) for role in reads}
    problem = PointwiseProblem(tree, tuple(specs.items()), image())
    return Node(name, problem, tuple((role, reads[role]) for role, _ in problem.inputs), (name,))


def graph(*nodes: Node, outputs: tuple[str, ...], inputs: tuple[str, ...] = ("x",)) -> Graph:
    values = {
        "w": TensorSpec((4, 4, 3, 3), DType.FP32), "bias": TensorSpec((4,), DType.FP32),
        **dict.fromkeys(inputs, image()), **{value: image() for node in nodes for value in node.writes},
    }  # fmt: skip
    return Graph(values, nodes, inputs, outputs, ("w", "bias")).needed()
