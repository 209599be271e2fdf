"""Stacks of blocks: the search finds one wherever there is one, and gives up only where there is none."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from convwright.graph.packing import Block, Puzzle, search, stack
from graph.lives import BEYOND_THE_BOUND, Life, fits, full_lives, small_lives

ENOUGH = 100_000


def puzzle_of(lives: list[Life]) -> Puzzle:
    return Puzzle.of([Block(*life) for life in lives])


@settings(deadline=None)
@given(st.one_of(small_lives(), full_lives()).filter(lambda lives: len(lives) <= 9), st.integers(-1, 2), st.data())
def test_a_search_finds_a_stack_exactly_where_there_is_one(lives: list[Life], more: int, data: st.DataObject) -> None:
    puzzle = puzzle_of(lives)
    target, order = puzzle.bound + more, data.draw(st.permutations(range(len(lives))))
    found, looked = search(puzzle, order, target, ENOUGH)
    assert (found is not None) == fits(lives, target)
    assert looked < ENOUGH
    if found is not None:
        assert puzzle.height(found) <= target
        assert not overlapping(puzzle, found)


def overlapping(puzzle: Puzzle, offsets: list[int]) -> list[tuple[int, int]]:
    """Blocks that meet and lie on the same place."""
    ends = [offset + block.size for offset, block in zip(offsets, puzzle.blocks, strict=True)]
    return [
        (number, rival)
        for number, rivals in enumerate(puzzle.rivals)
        for rival in rivals
        if offsets[number] < ends[rival] and offsets[rival] < ends[number]
    ]


@settings(deadline=None)
@given(st.permutations(BEYOND_THE_BOUND))
def test_little_is_looked_at_to_see_that_there_is_no_stack(lives: list[Life]) -> None:
    found, looked = search(puzzle_of(lives), range(len(lives)), 7, ENOUGH)
    assert found is None
    assert looked <= 60  # 56 at most in 20,000 orders


def test_a_search_stops_after_so_many_nodes() -> None:
    lives = list(BEYOND_THE_BOUND)
    assert search(puzzle_of(lives), range(len(lives)), 8, 9)[1] == 9
    assert search(puzzle_of(lives), range(len(lives)), 7, 5) == (None, 5)


def test_a_block_goes_into_the_lowest_or_into_the_tightest_gap() -> None:
    """Both gaps open once the blocks that were below are gone: one of 3, and above it one of 2."""
    puzzle = puzzle_of([(3, 0, 0), (1, 0, 1), (2, 0, 0), (1, 0, 1), (2, 1, 1)])
    in_turn = range(5)
    assert stack(puzzle, in_turn, 100, tightest=False) == [0, 3, 4, 6, 0]
    assert stack(puzzle, in_turn, 100, tightest=True) == [0, 3, 4, 6, 4]
    assert stack(puzzle, in_turn, 7, tightest=True) is None


def test_moments_are_the_steps_at_which_no_other_has_all_that_lives() -> None:
    puzzle = puzzle_of([(1, 0, 1), (2, 1, 3), (4, 3, 4), (8, 6, 6)])
    assert puzzle.moments == ((0, 1), (1, 2), (3,))
    assert puzzle.loads == (3, 6, 8)
    assert puzzle.spans == ((0, 1), (0, 2), (1, 2), (2, 3))
    assert puzzle.rivals == ((1,), (0, 2), (1,), ())
    assert [block.load for block in puzzle.blocks] == [3, 6, 6, 8]
