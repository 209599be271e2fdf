"""Lives of buffers that are hard to place, and the least that they take, found by trying all offsets."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count

from hypothesis import strategies as st

from convwright.graph.memory_plan import Buffer

# Units, first and last step.
Life = tuple[int, int, int]

# Greedy orders fail at the first one. At the second one no plan reaches the lower bound.
FOR_A_SEARCH: tuple[Life, ...] = ((2, 1, 4), (3, 5, 5), (2, 3, 5), (2, 3, 4))
BEYOND_THE_BOUND: tuple[Life, ...] = (
    (4, 0, 0), (3, 0, 1), (3, 1, 4), (1, 1, 3), (2, 2, 2), (1, 2, 4), (2, 3, 3), (3, 4, 5), (4, 5, 5),
)  # fmt: skip


@st.composite
def small_lives(draw: st.DrawFn) -> list[Life]:
    made = []
    for _ in range(draw(st.integers(1, 6))):
        first = draw(st.integers(0, 5))
        made.append((draw(st.integers(1, 4)), first, first + draw(st.integers(0, 3))))
    return made


@st.composite
def full_lives(draw: st.DrawFn) -> list[Life]:
    """Lives with no slack: at each step, what begins takes all that what ended leaves."""
    units, steps = draw(st.integers(3, 7)), draw(st.integers(2, 5))
    alive: list[tuple[int, int]] = []
    done = []
    for step in range(steps):
        ends = [step > 0 and draw(st.booleans()) for _ in alive]
        done += [(size, first, step - 1) for (size, first), end in zip(alive, ends, strict=True) if end]
        alive = [block for block, end in zip(alive, ends, strict=True) if not end]
        while room := units - sum(size for size, _ in alive):
            alive.append((draw(st.integers(1, min(room, 4))), step))
    return done + [(size, first, steps - 1) for size, first in alive]


def fits(lives: Sequence[Life], height: int, placed: tuple[tuple[Buffer, int], ...] = ()) -> bool:
    """Whether some offsets do within ``height`` units, by trying all that there are."""
    if len(placed) == len(lives):
        return True
    buffer = Buffer("next", *lives[len(placed)])
    return any(
        fits(lives, height, (*placed, (buffer, start)))
        for start in range(height - buffer.nbytes + 1)
        if not any(
            buffer.overlaps(other) and start < at + other.nbytes and at < start + buffer.nbytes for other, at in placed
        )
    )


def least(lives: Sequence[Life]) -> int:
    """The units of the best plan. It takes no less than the most that lives at any step."""
    bound = max(sum(units for units, first, last in lives if first <= step <= last) for _, step, _ in lives)
    return next(height for height in count(bound) if fits(lives, height))
