"""What a graph refuses, and what it leaves out."""

from __future__ import annotations

from dataclasses import replace

import pytest

from convwright.errors import BadInput
from convwright.graph.graph import Node
from convwright.graph.operations import View
from graph.small_graph import conv, graph, image, pointwise


def test_what_no_output_needs_is_left_out() -> None:
    made = graph(conv("a", "x"), conv("b", "x", epilogue="bias"), outputs=("a",))
    assert [node.name for node in made.nodes] == ["a"]
    assert made.constants == ("w",)
    assert set(made.values) == {"x", "w", "a"}


def test_it_prints_a_line_for_each_node() -> None:
    made = graph(conv("a", "x"), pointwise("b", "relu(a)", a="a"), outputs=("b",))
    assert len(str(made).splitlines()) == 4
    assert "b = pointwise" in str(made)


def test_readers_and_writers() -> None:
    made = graph(conv("a", "x"), pointwise("b", "a + b", a="a", b="a"), outputs=("b",))
    assert made.writers["a"].name == "a"
    assert [node.name for node in made.readers["a"]] == ["b"]
    assert "b" not in made.readers


@pytest.mark.parametrize(
    ("nodes", "outputs", "why"),
    [
        ([pointwise("b", "relu(a)", a="a"), conv("a", "x")], ("b",), "nothing before it computes"),
        ([conv("a", "x"), conv("a", "x")], ("a",), "two values called 'a'"),
        ([conv("a", "x")], ("z",), "is called 'z'"),
        ([replace(conv("a", "x"), reads=(("x", "x"),))], ("a",), "does not take x"),
        ([replace(conv("a", "x"), writes=("a", "b"))], ("a",), "has 1 outputs, got 2"),
    ],
)
def test_what_is_no_graph_is_refused(nodes: list[Node], outputs: tuple[str, ...], why: str) -> None:
    with pytest.raises(BadInput, match=why):
        graph(*nodes, outputs=outputs)


def test_values_have_the_sizes_that_operations_say() -> None:
    node = Node("a", View(image(), image(8, 6, 1)), (("x", "x"),), ("a",))
    with pytest.raises(BadInput, match="and a is fp32"):
        graph(node, outputs=("a",))
    with pytest.raises(BadInput, match="keep the element count and the dtype"):
        View(image(), image(8))
