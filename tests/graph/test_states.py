"""Where the parts of a concatenation can lie."""

from __future__ import annotations

from itertools import pairwise

from convwright.core.dtype import DType
from convwright.core.kinds.copy import CopyProblem as Copy
from convwright.core.tensor_spec import Layout, TensorSpec
from convwright.graph.graph import Graph, Node
from convwright.graph.operations import Join
from convwright.graph.states import Slice, States

IN = (("x", "in"),)


def image(channels: int) -> TensorSpec:
    return TensorSpec((2, channels, 4, 6), DType.FP16)


def joined(parts: dict[str, int], *joins: tuple[str, list[str]]) -> Graph:
    """A graph of concatenations of its inputs, and of one another."""
    channels, nodes = dict(parts), []
    for whole, names in joins:
        channels[whole] = sum(channels[name] for name in names)
        operation = Join(tuple(image(channels[name]) for name in names), image(channels[whole]), 1)
        reads = tuple((f"x{place}", name) for place, name in enumerate(names))
        nodes.append(Node(whole, operation, reads, (whole,)))
    values = {name: image(count) for name, count in channels.items()}
    return Graph(values, tuple(nodes), tuple(parts), tuple(whole for whole, _ in joins))


def test_each_part_has_its_place_in_the_whole() -> None:
    states = States(joined({"a": 8, "b": 3, "c": 5}, ("y", ["a", "b", "c"])))
    assert states.slices == {
        "a": (Slice("y", 1, 0),), "b": (Slice("y", 1, 8),), "c": (Slice("y", 1, 11),), "y": (Slice("y", 1, 0),)
    }  # fmt: skip
    (planes,), (last,) = states.sliced("b", Layout.NCHW), states.sliced("b", Layout.NHWC)
    assert planes.spec.strides == (16 * 24, 24, 6, 1)
    assert planes.offset_bytes == 8 * 24 * 2
    assert last.spec.strides == (16 * 24, 1, 16 * 6, 16)
    assert last.offset_bytes == 8 * 2
    (aligned,) = states.sliced("c", Layout.NHWC)
    assert (last.spec.alignment, aligned.spec.alignment) == (16, 2)


def test_what_begins_a_larger_concatenation_lies_in_that() -> None:
    graph = joined({"a": 4, "b": 4, "c": 4}, ("ab", ["a", "b"]), ("abc", ["a", "b", "c"]), ("abcab", ["abc", "ab"]))
    slices = States(graph).slices
    assert slices["abcab"] == (Slice("abcab", 1, 0),)
    assert slices["abc"] == (Slice("abcab", 1, 0),)
    assert set(slices["ab"]) == {Slice("abcab", 1, 12), Slice("abcab", 1, 0)}
    assert Slice("abcab", 1, 4) in slices["b"]


def test_all_prefixes_of_a_dense_block_lie_in_the_last() -> None:
    names = [f"f{place}" for place in range(6)]
    graph = joined(dict.fromkeys(names, 8), *((f"y{end}", names[:end]) for end in range(2, 7)))
    slices = States(graph).slices
    assert {part.whole for places in slices.values() for part in places} == {"y6"}
    assert all(len(places) == 1 for places in slices.values())


def split(size: int, *ends: int, joined: tuple[str, ...] = ()) -> Graph:
    """What is computed of an input, cut into parts, some of which are concatenated."""
    values, nodes = {"in": image(size), "x": image(size)}, [Node("x", Copy(image(size), image(size)), IN, ("x",))]
    for place, (start, end) in enumerate(pairwise((0, *ends, size))):
        margins = ((0, 0), (-start, end - size), (0, 0), (0, 0))
        values[f"p{place}"] = image(end - start)
        operation = Copy(image(size), image(end - start), margins)
        nodes.append(Node(f"p{place}", operation, (("x", "x"),), (f"p{place}",)))
    if joined:
        inputs = tuple(values[name] for name in joined)
        values["y"] = image(sum(each.shape[1] for each in inputs))
        reads = tuple((f"x{place}", name) for place, name in enumerate(joined))
        nodes.append(Node("y", Join(inputs, values["y"], 1), reads, ("y",)))
    return Graph(values, tuple(nodes), ("in",), (nodes[-1].name,))


def test_what_is_cut_out_of_a_value_lies_in_that() -> None:
    assert States(split(12, 4, 6)).slices == {
        "x": (Slice("x", 1, 0),), "p0": (Slice("x", 1, 0),), "p1": (Slice("x", 1, 4),), "p2": (Slice("x", 1, 6),)
    }  # fmt: skip


def test_a_value_whose_parts_are_concatenated_again_lies_where_they_do() -> None:
    slices = States(split(12, 4, 6, joined=("p2", "p0", "p1", "p2", "p2"))).slices
    assert slices["x"] == (Slice("y", 1, 6),)
    assert Slice("y", 1, 10) in slices["p1"]
    other = States(split(12, 4, 6, joined=("p2", "p0", "p2"))).slices
    assert other["x"] == (Slice("x", 1, 0),), "a part of it is missing"
    assert set(other["p0"]) == {Slice("y", 1, 6), Slice("x", 1, 0)}


def test_states_are_found_by_their_names() -> None:
    states = States(joined({"a": 8, "b": 8}, ("y", ["a", "b"])))
    names = [state.name for state in states.all("b")]
    assert names == ["nchw", "nhwc", "nchw in y from 8", "nhwc in y from 8"]
    assert [states.named("b", name).name for name in names] == names
    assert not states.knows("b", "nchw in y from 4")


def test_without_slices_there_are_layouts_only() -> None:
    states = States(joined({"a": 8, "b": 8}, ("y", ["a", "b"])), sliced=False)
    assert [state.name for state in states.all("b")] == ["nchw", "nhwc"]
