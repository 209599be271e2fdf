"""Which nodes one operation can compute together."""

from __future__ import annotations

import pytest

from convwright.graph.groups import Group, groups, inside, largest
from graph.small_graph import conv, graph, pointwise, rows


def merged(found: tuple[Group, ...]) -> dict[str, str]:
    """Groups of several nodes, and what computes them: the epilogue of a convolution, or an expression."""
    return {group.name: text(group) for group in found if len(group.nodes) > 1}


def text(group: Group) -> str:
    operation = group.operation
    return str(operation.expression if operation.kind == "pointwise" else operation.epilogue)  # type: ignore[union-attr]


def test_a_convolution_takes_what_is_fused_after_it() -> None:
    found = groups(
        graph(
            conv("c", "x", epilogue="bias"), pointwise("s", "a + b", a="c", b="x"), pointwise("r", "relu(a)", a="s"),
            outputs=("r",),
        )
    )  # fmt: skip
    assert merged(found) == {"c+s": "residual+bias", "s+r": "relu(a + b)", "c+s+r": "residual+bias+relu"}
    whole = next(group for group in found if group.name == "c+s+r")
    assert dict(whole.reads) == {"x": "x", "w": "w", "bias": "bias", "residual": "x"}
    assert whole.writes == ("r",)


def test_every_node_is_a_group_by_itself() -> None:
    made = graph(conv("c", "x"), pointwise("r", "relu(a)", a="c"), outputs=("r",))
    assert {group.name for group in groups(made)} >= {"c", "r"}


@pytest.mark.parametrize("text", ["tanh(a)", "a * 2", "relu(a * 2)", "relu(a) + a", "minimum(relu(a), 6)"])
def test_what_no_epilogue_computes_stays_by_itself(text: str) -> None:
    assert merged(groups(graph(conv("c", "x"), pointwise("r", text, a="c"), outputs=("r",)))) == {}


def test_what_is_read_outside_or_returned_is_not_merged() -> None:
    read_twice = [conv("c", "x"), pointwise("r", "relu(a)", a="c"), pointwise("t", "a + b", a="r", b="c")]
    assert merged(groups(graph(*read_twice, outputs=("t",)))) == {"r+t": "relu(a) + a"}
    returned = [conv("c", "x"), pointwise("r", "relu(a)", a="c")]
    assert merged(groups(graph(*returned, outputs=("r", "c")))) == {}


def test_only_one_convolution_is_merged() -> None:
    made = graph(conv("c", "x"), conv("d", "x"), pointwise("s", "a + b", a="c", b="d"), outputs=("s",))
    assert merged(groups(made)) == {"c+s": "residual", "d+s": "residual"}


def test_a_gate_is_merged_with_what_computes_it() -> None:
    made = graph(
        conv("c", "x"), pointwise("g", "sigmoid(a)", a="c"), pointwise("p", "a * b", a="x", b="g"), outputs=("p",)
    )
    assert merged(groups(made)) == {"g+p": "a * sigmoid(b)"}


def test_what_reduces_rows_is_merged_with_what_follows_it() -> None:
    made = graph(
        conv("c", "x"), rows("n", "a - mean(a)", (1, 2, 3), groups=2, a="c"), pointwise("s", "a + b", a="n", b="x"),
        pointwise("r", "relu(a)", a="s"), outputs=("r",),
    )  # fmt: skip
    assert merged(groups(made)) == {
        "n+s": "a - mean(a) + b", "s+r": "relu(a + b)", "n+s+r": "relu(a - mean(a) + b)",
    }  # fmt: skip
    whole = next(group.operation for group in groups(made) if group.name == "n+s+r")
    assert "row:chw groups:2" in whole.key


def test_rows_of_two_kinds_are_not_merged() -> None:
    made = graph(
        rows("m", "a - mean(a)", (1,), a="x"), rows("n", "a / sum(a)", (2,), a="x"),
        pointwise("s", "a + b", a="m", b="n"), outputs=("s",),
    )  # fmt: skip
    assert merged(groups(made)) == {"m+s": "a - mean(a) + b", "n+s": "a + b / sum(b)"}


def test_a_square_of_a_sum_reads_it_once() -> None:
    made = graph(
        pointwise("s", "a + b", a="x", b="z"), pointwise("p", "a * b", a="s", b="s"), outputs=("p",), inputs=("x", "z")
    )
    assert merged(groups(made)) == {"s+p": "(a + b) * (a + b)"}


def test_the_largest_groups_are_enough() -> None:
    block = graph(
        conv("a", "x"), pointwise("p", "relu(a)", a="a"), conv("b", "p"), conv("down", "x"),
        pointwise("s", "a + b", a="b", b="down"), pointwise("r", "relu(a)", a="s"), outputs=("r",),
    )  # fmt: skip
    kept = largest(groups(block), block)
    assert {group.name for group in kept} == {"a+p", "b+s+r", "down+s+r", "b", "down"}
    assert {group.name for group in inside(groups(block), kept[:1])} == {"a", "p"}


def test_what_is_read_twice_is_computed_by_itself() -> None:
    made = graph(
        conv("c", "x"), pointwise("r", "relu(a)", a="c"), conv("d", "r"), pointwise("s", "a + b", a="d", b="r"),
        outputs=("s", "r"),
    )  # fmt: skip
    assert {group.name for group in largest(groups(made), made)} == {"c+r", "d+s"}
