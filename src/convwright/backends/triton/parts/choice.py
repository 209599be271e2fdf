"""Which few configurations of a sum in parts are worth trying."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeVar

# Tensor cores sum a part of fp16, bf16 or TF32 without ever rounding it. Each 16 pixels are cut at 2^-24 of the sum:
# with so many pixels that is at most a quarter of fp16's roundoff.
MOST_PIXELS_OF_A_PART = 2**15
# Blocks for each multiprocessor. Between these numbers some of them would wait for others.
BLOCKS_EACH = (1, 2, 3, 4, 6, 8)

Tile = TypeVar("Tile")


def promising(partings: Iterable[Iterable[Tile]], taken: Callable[[Tile], float], count: int) -> list[Tile]:
    """Of tiles, each with several numbers of parts, so many that should be fastest by what they are ``taken`` to need.

    They are of different tiles but for the best one, which comes with two numbers of parts: how well a tile uses a
    multiprocessor is what an estimate knows least.
    """
    ranked = sorted((sorted(each, key=taken) for each in partings), key=lambda parted: taken(parted[0]))
    return [*ranked[0][:2], *(parted[0] for parted in ranked[1:])][:count]
