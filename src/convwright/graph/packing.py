"""Stack blocks with lifetimes as low as possible: one by one in some order, or by a search."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from math import inf

# Above every offset: the floor of a placed block, so that a minimum ignores it.
_PLACED = 1 << 62

# The offset of each block.
Offsets = list[int]


@dataclass(frozen=True, slots=True)
class Block:
    """``size`` to be placed from step ``first`` to step ``last``. ``load`` is the peak of live sizes in this time."""

    size: int
    first: int
    last: int
    load: int = 0

    @property
    def life(self) -> int:
        return self.last - self.first + 1


@dataclass(frozen=True, slots=True)
class Puzzle:
    """Numbered blocks, and which of them are alive together.

    Moments are the steps that matter: what is alive at any other step is also alive together at one of them.
    """

    blocks: tuple[Block, ...]
    moments: tuple[tuple[int, ...], ...]  # the blocks alive at each moment
    loads: tuple[int, ...]  # the total size alive at each moment
    spans: tuple[tuple[int, int], ...]  # for each block, its first moment and the one after its last
    rivals: tuple[tuple[int, ...], ...]  # for each block, the others alive at the same time

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
        """The lower bound: the peak of live sizes."""
        return max(self.loads)

    def height(self, offsets: Offsets) -> int:
        return max(offset + block.size for offset, block in zip(offsets, self.blocks, strict=True))


def stack(puzzle: Puzzle, order: Sequence[int], limit: int, *, tightest: bool) -> Offsets | None:
    """Place each block in turn at the lowest free offset, or with ``tightest`` in the tightest gap.

    A block that fits into no gap goes on top. None if a block reaches ``limit``.
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
    """An incomplete stack."""

    placed: dict[int, int]  # offsets of placed blocks, lowest first
    at: int  # offset of the last one
    turn: int  # its position in the order
    floors: list[int]  # the lowest possible offset of each other block
    loads: Sequence[int]  # the total size not placed yet, at each moment
    waiting: Sequence[int]  # blocks not placed yet, in the order


def search(puzzle: Puzzle, order: Sequence[int], target: int, nodes: int) -> tuple[Offsets | None, int]:
    """Offsets within ``target``, and the number of nodes visited. None with fewer than ``nodes``: no such offsets
    exist.

    Blocks are placed from low to high, each on top of those that are alive with it. Of several at the same height, the
    first in ``order`` is tried first. The search is complete: in a stack where no block can move down, each block lies
    on the ground or on another.
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
    """The blocks that can come next, lowest first.

    A block is skipped if it leaves room below for another whole block, which could move there. It is also skipped if
    the remaining blocks of some moment no longer fit above it.
    """
    floors = node.floors
    below = min([floors[number] + puzzle.blocks[number].size for number in node.waiting])
    highest = min(target - max(node.loads), below - 1)
    fit = [number for number in node.waiting if node.at <= floors[number] <= highest]
    fit = [number for number in fit if floors[number] > node.at or turns[number] > node.turn]
    return sorted(fit, key=lambda number: floors[number])


def _with(puzzle: Puzzle, node: _Node, number: int, turn: int, target: int) -> _Node | None:
    """``node`` with one more block; None if the rest no longer fits."""
    at, size, (begin, end) = node.floors[number], puzzle.blocks[number].size, puzzle.spans[number]
    floors, loads = node.floors.copy(), list(node.loads)
    for rival in puzzle.rivals[number]:
        if floors[rival] < at + size:
            floors[rival] = at + size
    floors[number] = _PLACED
    for moment in range(begin, end):
        loads[moment] -= size
    for moment, load in enumerate(loads):
        # Floors rise at most to the new block's top. Most moments have enough room above that.
        if load > target - at - size and min([floors[alive] for alive in puzzle.moments[moment]]) + load > target:
            return None
    waiting = [other for other in node.waiting if other != number]
    return _Node({**node.placed, number: at}, at, turn, floors, loads, waiting)
