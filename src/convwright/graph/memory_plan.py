"""Place each buffer of a network in one arena: sizes and lifetimes in, offsets out."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate

from convwright.graph.packing import Block, Offsets, Puzzle, search, stack

ALIGNMENT_BYTES = 256


@dataclass(frozen=True, slots=True)
class Buffer:
    """``nbytes`` that must stay intact from step ``first`` to step ``last``, both included."""

    name: str
    nbytes: int
    first: int
    last: int
    is_workspace: bool = False

    def overlaps(self, other: Buffer) -> bool:
        return self.first <= other.last and other.first <= self.last


@dataclass(frozen=True, slots=True)
class MemoryPlan:
    """The offset of each buffer, and the size of the arena.

    ``lower_bound`` is the peak of live bytes. No plan takes less; in rare cases every plan takes more.
    """

    offsets: dict[str, int]
    nbytes: int
    lower_bound: int

    @property
    def gap(self) -> float:
        """Arena size divided by the lower bound; 1.0 if nothing is alive."""
        return self.nbytes / self.lower_bound if self.lower_bound else 1.0

    def __str__(self) -> str:
        return (
            f"arena: {self.nbytes:,} bytes, at least {self.lower_bound:,} are alive at once "
            f"(a gap of {100 * (self.gap - 1):.1f} %)"
        )


def aligned(nbytes: int) -> int:
    """``nbytes`` rounded up to the arena's alignment."""
    return -(-nbytes // ALIGNMENT_BYTES) * ALIGNMENT_BYTES


def lower_bound(buffers: Sequence[Buffer]) -> int:
    """The most aligned bytes that are alive at any step.

    >>> lower_bound([Buffer("a", 512, 0, 1), Buffer("b", 256, 1, 2), Buffer("c", 512, 2, 3)])
    768
    """
    begins = [(buffer.first, aligned(buffer.nbytes)) for buffer in buffers]
    ends = [(buffer.last + 1, -aligned(buffer.nbytes)) for buffer in buffers]
    return max(accumulate(change for _, change in sorted(begins + ends)), default=0)


def plan_memory(buffers: Sequence[Buffer], *, patience: int = 4000) -> MemoryPlan:
    """The smallest arena found by greedy orders, else by a search that visits at most ``patience`` nodes.

    Equal buffers get equal plans.

    >>> plan = plan_memory([Buffer("a", 512, 0, 1), Buffer("b", 256, 1, 2), Buffer("c", 512, 2, 3)])
    >>> plan.offsets, plan.nbytes, plan.gap
    ({'a': 0, 'b': 512, 'c': 0}, 768, 1.0)
    """
    offsets, total = {buffer.name: 0 for buffer in buffers}, 0
    # Sizes are in units of the alignment, so every block is aligned. Empty buffers can lie anywhere.
    sized = [buffer for buffer in buffers if buffer.nbytes]
    if sized:
        puzzle = Puzzle.of([Block(aligned(b.nbytes) // ALIGNMENT_BYTES, b.first, b.last) for b in sized])
        placed = _searched(puzzle, _stacked(puzzle), patience)
        offsets |= {buffer.name: ALIGNMENT_BYTES * offset for buffer, offset in zip(sized, placed, strict=True)}
        total = ALIGNMENT_BYTES * puzzle.height(placed)
    return MemoryPlan(offsets, total, lower_bound(buffers))


_Key = Callable[[Block], tuple[int, ...]]

# Sort keys for the greedy orders. None is the best for all networks.
_GREEDY: tuple[_Key, ...] = (
    lambda block: (-block.size,),
    lambda block: (-block.load, -block.life, -block.size),
    lambda block: (-block.load, -block.life * block.size),
    lambda block: (-block.life * block.size,),
    lambda block: (-block.life, -block.size),
    lambda block: (-block.size, -block.life),
    lambda block: (-block.size, -block.last),
    lambda block: (-block.size, block.first),
    lambda block: (-block.load, -block.size),
    lambda block: (block.first, -block.size),
    lambda block: (-block.first, -block.size),
    lambda block: (-block.last, -block.size),
)
_SEARCHED = _GREEDY[1:5]


def _orders(puzzle: Puzzle, keys: Sequence[_Key]) -> Iterator[list[int]]:
    for key in keys:
        yield sorted(range(len(puzzle.blocks)), key=lambda number: key(puzzle.blocks[number]))


def _stacked(puzzle: Puzzle) -> Offsets:
    """The lowest stack of all greedy orders."""
    best: Offsets = []
    height = sum(block.size for block in puzzle.blocks) + 1
    for order in _orders(puzzle, _GREEDY):
        for tightest in (False, True):
            found = stack(puzzle, order, height, tightest=tightest)
            if found is not None:
                best, height = found, puzzle.height(found)
            if height == puzzle.bound:
                return best
    return best


def _searched(puzzle: Puzzle, best: Offsets, patience: int) -> Offsets:
    """``best``, or a lower stack if a search finds one.

    It tries the lower bound first, then bisects between the highest failure and the lowest stack.
    """
    orders = list(_orders(puzzle, _SEARCHED))
    target, height = puzzle.bound, puzzle.height(best)
    failed = target - 1
    while failed < height - 1 and patience > 0:
        found, looked = _found(puzzle, orders, target, patience)
        if found is None:
            failed = target
        else:
            best, height = found, puzzle.height(found)
        patience -= looked
        target = (failed + height) // 2
    return best


def _found(puzzle: Puzzle, orders: Sequence[Sequence[int]], target: int, patience: int) -> tuple[Offsets | None, int]:
    """Offsets within ``target`` from the first order that gives any, and the number of nodes visited.

    A successful search seldom visits many more nodes than there are blocks, so another order is tried early.
    """
    share, left = max(patience // 8, 2 * len(puzzle.blocks)), patience
    for order in orders:
        found, looked = search(puzzle, order, target, min(share, left))
        left -= looked
        if found is not None or looked < share:
            return found, patience - left
    return None, patience - left
