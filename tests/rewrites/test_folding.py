"""Axes in blocks: every element and every tap has one place, and meets what it met before."""

from __future__ import annotations

from hypothesis import assume, given, settings
from hypothesis import strategies as st

from convwright.core.geometry import Axis
from convwright.rewrites.folding import Blocks, Fold

AXES = st.builds(
    Axis,
    size=st.integers(1, 12),
    taps=st.integers(1, 9),
    stride=st.integers(1, 5),
    pad=st.tuples(st.integers(0, 6), st.integers(0, 6)),
    dilation=st.just(1),
)


def meetings(axis: Axis) -> set[tuple[int, int, int]]:
    """Output position, tap and input element of each product."""
    return {
        (position, tap, element)
        for position in range(axis.out)
        for tap in range(axis.taps)
        if 0 <= (element := position * axis.stride + tap - axis.pad[0]) < axis.size
    }


def places(blocks: Blocks, *, mirrored: bool = False) -> dict[int, tuple[int, int]]:
    """Block and place of each element."""
    found = {}
    for start, where in blocks.mirrored_runs() if mirrored else blocks.runs():
        for index in range(where.blocks * where.width):
            block, place = divmod(index, where.width)
            assert start + index not in found
            found[start + index] = where.block + block, where.place + place
    return found


@settings(max_examples=300, deadline=None)
@given(axis=AXES)
def test_the_same_elements_meet(axis: Axis) -> None:
    assume(axis.out > 0)
    fold = Fold.of(axis)
    assume(fold.input.count > 0)
    folded = Axis(fold.input.count, fold.filter.count, 1, fold.pad, 1)
    assert folded.out == axis.out
    elements = {where: element for element, where in places(fold.input).items()}
    taps = {where: tap for tap, where in places(fold.filter).items()}
    met = {
        (position, taps[tap, place], elements[block, place])
        for position, tap, block in meetings(folded)
        for place in range(axis.stride)
        if (tap, place) in taps and (block, place) in elements
    }
    assert met == meetings(axis)


@settings(max_examples=300, deadline=None)
@given(axis=AXES)
def test_a_fold_without_input_means_that_no_output_reads_any(axis: Axis) -> None:
    assume(axis.out > 0)
    if Fold.of(axis).input.count == 0:
        assert not meetings(axis)


@settings(max_examples=300, deadline=None)
@given(axis=AXES)
def test_gaps_are_what_no_element_fills(axis: Axis) -> None:
    assume(axis.out > 0)
    fold = Fold.of(axis)
    for blocks in (fold.input, fold.filter):
        if blocks.count:
            filled = {*places(blocks).values()}
            empty = {
                (gap.block + block, gap.place + place)
                for gap in blocks.gaps()
                for block in range(gap.blocks)
                for place in range(gap.width)
            }
            assert not filled & empty
            assert filled | empty == {(b, p) for b in range(blocks.count) for p in range(blocks.size)}


@settings(max_examples=100, deadline=None)
@given(axis=AXES)
def test_a_mirrored_axis_has_the_same_places_in_reverse(axis: Axis) -> None:
    assume(axis.out > 0)
    taps = Fold.of(axis).filter
    straight, mirrored = places(taps), places(taps, mirrored=True)
    assert mirrored == {axis.taps - 1 - tap: where for tap, where in straight.items()}


def test_no_block_is_lost_to_padding() -> None:
    """A 4-tap filter of stride 2 with padding 1 has two blocks of taps, not three."""
    assert Fold.of(Axis(64, 4, 2, (1, 1), 1)).filter == Blocks(4, 0, 2, 2)
    assert Fold.of(Axis(64, 4, 2, (1, 1), 1)).input.offset == 1
    assert Fold.of(Axis(224, 16, 16, (0, 0), 1)) == Fold(Blocks(224, 0, 16, 14), Blocks(16, 0, 16, 1), (0, 0))
