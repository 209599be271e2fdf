"""Where each buffer of a network lies in one arena: sizes and lifetimes in, offsets out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

ALIGNMENT_BYTES = 256


@dataclass(frozen=True, slots=True)
class Buffer:
    """``nbytes`` that must stay intact from step ``first`` to step ``last``, both included."""

    name: str
    nbytes: int
    first: int
    last: int

    def overlaps(self, other: Buffer) -> bool:
        return self.first <= other.last and other.first <= self.last


@dataclass(frozen=True, slots=True)
class MemoryPlan:
    offsets: dict[str, int]
    nbytes: int


def aligned(nbytes: int) -> int:
    """``nbytes`` rounded up to the arena's alignment."""
    return -(-nbytes // ALIGNMENT_BYTES) * ALIGNMENT_BYTES


def plan_memory(buffers: Sequence[Buffer]) -> MemoryPlan:
    """Place the largest buffers first, each at the lowest offset free during its whole life.

    >>> plan = plan_memory([Buffer("a", 512, 0, 1), Buffer("b", 256, 1, 2), Buffer("c", 512, 2, 3)])
    >>> plan.offsets, plan.nbytes
    ({'a': 0, 'c': 0, 'b': 512}, 768)
    """
    placed: list[tuple[Buffer, int]] = []
    for buffer in sorted(buffers, key=lambda b: -b.nbytes):
        offset = 0
        for other, start in sorted(placed, key=lambda entry: entry[1]):
            if buffer.overlaps(other) and start < offset + buffer.nbytes and offset < start + other.nbytes:
                offset = aligned(start + other.nbytes)
        placed.append((buffer, offset))
    total = max((offset + aligned(buffer.nbytes) for buffer, offset in placed), default=0)
    return MemoryPlan({buffer.name: offset for buffer, offset in placed}, total)
