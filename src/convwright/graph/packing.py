"""Blocks that live at the same time, stacked as low as can be: one by one in some order, or by a search."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from math import inf

# Above every offset: where a block that is placed is kept out of a minimum.
_PLACED = 1 << 62

# The offset of each block.
Offsets = list[int]


@dataclass(frozen=True, slots=True)
class Block:
    """``size`` that must lie somewhere from ``first`` to ``last``. ``load`` is the most that lives at any of these."""

    size: int
    first: int
    last: int
    load: int = 0

    @property
    def life(self) -> int:
        return self.last - self.first + 1


@dataclass(frozen=True, slots=True)
class Puzzle:
    """Blocks by number, and which of them meet.

    Moments are the steps that count. What lives at any other step lives together at a moment as well.
    """

    blocks: tuple[Block, ...]
    moments: tuple[tuple[int, ...], ...]  # the blocks that live at each
    loads: tuple[int, ...]  # how much lives at each
    spans: tuple[tuple[int, int], ...]  # of each block: its first moment, and the one after its last
    rivals: tuple[tuple[int, ...], ...]  # of each block: the others that it meets

    @classmethod
    def of(cls, blocks: Sequence[Block]) -> Puzzle:
        steps, moments = [], []
        for step, following in pairwise([*sorted({block.first for block in blocks}), inf]):
            alive = tuple(number for number, block in enumerate(blocks) if block.first <= step <= block.last)
            if min(blocks[number].last for number in alive) < following:
                steps.append(step)
                moments.append(alive)
        loads = tuple(sum(blocks[number].size for number in alive) for alive in moments)
        spans = tuple((bisect_left(steps, block.first), bisect_right(steps, block.last)) for block in blocks)
        loaded = tuple(
            replace(block, load=max(loads[begin:end])) for block, (begin, end) in zip(blocks, spans, strict=True)
        )
        rivals = tuple(
            tuple(i for i, b in enumerate(blocks) if b.first <= block.last and block.first <= b.last and i != number)
            for number, block in enumerate(blocks)
        )
        return cls(loaded, tuple(moments), loads, spans, rivals)

    @property
    def bound(self) -> int:
        """The most that lives at any step: nothing is lower."""
        return max(self.loads)

    def height(self, offsets: Offsets) -> int:
        return max(offset + block.size for offset, block in zip(offsets, self.blocks, strict=True))


def stack(puzzle: Puzzle, order: Sequence[int], limit: int, *, tightest: bool) -> Offsets | None:
    """Each block in its turn at the lowest place that is free during its life, or in the tightest gap between others.

    A block that fits into no gap goes on top. None where one reaches ``limit``.
    """
    offsets, sizes = [-1] * len(puzzle.blocks), [block.size for block in puzzle.blocks]
    for number in order:
        size, top, place, tightest_room = sizes[number], 0, -1, _PLACED
        below = sorted((offsets[rival], sizes[rival]) for rival in puzzle.rivals[number] if offsets[rival] >= 0)
        for start, length in below:
            if size <= start - top < tightest_room:
                place, tightest_room = top, start - top
                if not tightest:
                    break
            if start + length > top:
                top = start + length
        offsets[number] = top if place < 0 else place
        if offsets[number] + size >= limit:
            return None
    return offsets


@dataclass(frozen=True, slots=True)
class _Node:
    """A stack that is not complete."""

    placed: dict[int, int]  # blocks with their offsets, from the lowest to the highest
    at: int  # where the last of them lies
    turn: int  # its place in the order
    floors: list[int]  # how low each other block can still be
    loads: Sequence[int]  # how much is not placed yet, at each moment
    waiting: Sequence[int]  # the blocks that are not placed yet, in the order


def search(puzzle: Puzzle, order: Sequence[int], target: int, nodes: int) -> tuple[Offsets | None, int]:
    """Offsets within ``target``, and the nodes looked at. None after fewer than ``nodes``: there are no such offsets.

    Blocks are placed from the lowest to the highest, each on top of those that it meets. Of several that would lie
    equally low, the first in ``order`` is tried first. This leaves nothing out: in a stack of which no block can be
    moved to a lower place, each lies on the ground or on another.
    """
    turns = {number: turn for turn, number in enumerate(order)}
    root = _Node({}, 0, -1, [0] * len(puzzle.blocks), puzzle.loads, order)
    open_ = [(root, number) for number in reversed(_next(puzzle, root, turns, target))]
    for looked in range(nodes):
        if not open_:
            return None, looked
        parent, number = open_.pop()
        node = _with(puzzle, parent, number, turns[number], target)
        if node is not None and not node.waiting:
            return [node.placed[number] for number in range(len(puzzle.blocks))], looked + 1
        if node is not None:
            open_ += [(node, number) for number in reversed(_next(puzzle, node, turns, target))]
    return None, nodes


def _next(puzzle: Puzzle, node: _Node, turns: dict[int, int], target: int) -> list[int]:
    """The blocks that can come next, the lowest first.

    None leaves room below itself for a whole other one, which could be moved there from wherever it comes to lie. None
    is so high that what still lives together at some moment does not fit above.
    """
    floors = node.floors
    below = min([floors[number] + puzzle.blocks[number].size for number in node.waiting])
    highest = min(target - max(node.loads), below - 1)
    fit = [number for number in node.waiting if node.at <= floors[number] <= highest]
    fit = [number for number in fit if floors[number] > node.at or turns[number] > node.turn]
    return sorted(fit, key=lambda number: floors[number])


def _with(puzzle: Puzzle, node: _Node, number: int, turn: int, target: int) -> _Node | None:
    """``node`` and one more block; None where the rest cannot fit any more."""
    at, size, (begin, end) = node.floors[number], puzzle.blocks[number].size, puzzle.spans[number]
    floors, loads = node.floors.copy(), list(node.loads)
    for rival in puzzle.rivals[number]:
        if floors[rival] < at + size:
            floors[rival] = at + size
    floors[number] = _PLACED
    for moment in range(begin, end):
        loads[moment] -= size
    for moment, load in enumerate(loads):
        # Floors rise to the new block's top at most. Most moments have room enough above that.
        if load > target - at - size and min([floors[alive] for alive in puzzle.moments[moment]]) + load > target:
            return None
    waiting = [other for other in node.waiting if other != number]
    return _Node({**node.placed, number: at}, at, turn, floors, loads, waiting)
