"""What a patch reads of a row: pieces that one instruction reads each, and where its taps find their columns."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from math import gcd

from convwright.backends.triton.operands import moves
from convwright.backends.triton.sweep import AT_ONCE_BYTES, Sweep, Track
from convwright.core.tensor_spec import TensorSpec


@dataclass(frozen=True, slots=True)
class Reading:
    """``pieces`` are columns behind the patch's first one, (first, width), in their order. ``places`` says of each
    column of taps which of all these columns those of the patch are."""

    pieces: tuple[tuple[int, int], ...]
    places: tuple[tuple[int, ...], ...]


@lru_cache(maxsize=256)  # all patches of a problem ask for few of them, several times each
def reading(columns: Track, cols: int, at_once: int) -> Reading:
    """For ``cols`` columns of the output, of which ``at_once`` or fewer are read by one instruction, from a multiple
    on."""
    phase = columns.phases[0]
    wanted = [
        [col * columns.stride + tap * columns.dilation - phase.before for col in range(cols)]
        for tap in range(phase.taps)
    ]
    most = gcd(at_once, cols * columns.stride)
    pieces = tuple(_pieces({place for places in wanted for place in places}, most))
    read = [first + place for first, width in pieces for place in range(width)]
    found = {place: index for index, place in enumerate(read)}
    return Reading(pieces, tuple(tuple(found[place] for place in places) for places in wanted))


def _pieces(wanted: set[int], most: int) -> list[tuple[int, int]]:
    """The fewest that begin at multiples of their width, each no wider than need be."""
    pieces = []
    for first in sorted({place // most * most for place in wanted}):
        here = [place for place in wanted if place // most * most == first]
        width = next(width for width in _powers(most) if min(here) // width == max(here) // width)
        pieces.append((min(here) // width * width, width))
    return pieces


def _powers(most: int) -> list[int]:
    return [1 << power for power in range(most.bit_length())]


def columns_at_once(spec: TensorSpec) -> int:
    """How many columns of a row one instruction reads or writes: as many lie from a multiple on, in every row."""
    others = moves(spec)[:-1]
    return gcd(AT_ONCE_BYTES // spec.dtype.nbytes, spec.shape[-1], spec.alignment // spec.dtype.nbytes, *others)


def groups_at_once(sweep: Sweep) -> int:
    """How many groups that lie side by side are read and written by one instruction."""
    numbers = [sweep.groups]
    for spec in sweep.read, sweep.written:
        images, _, *pixels = moves(spec)
        numbers += [AT_ONCE_BYTES // spec.dtype.nbytes, spec.alignment // spec.dtype.nbytes, images, *pixels]
    return gcd(*numbers)
