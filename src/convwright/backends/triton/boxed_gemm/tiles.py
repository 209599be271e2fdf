"""The configurations of products of boxes, and which few are worth trying on a problem."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import prod

from convwright.backends.triton.boxes.room import BARRIERS_BYTES, NUMBER_BYTES, blocks_together
from convwright.backends.triton.boxes.window import Window
from convwright.backends.triton.configuration import Configuration
from convwright.backends.triton.multiprocessor import (
    BLOCK_CYCLES,
    CACHE_BYTES_PER_CYCLE,
    STEP_CYCLES,
    products_per_cycle,
    sm_count,
)
from convwright.core.device import DeviceFacts
from convwright.core.dtype import Arithmetic
from convwright.core.problem import ConvProblem

_MORE_REGISTERS = 56  # than those of the sums


@dataclass(frozen=True, slots=True)
class Tile(Configuration):
    """What a program computes at a time: ``bn`` channels by so many pixels, ``bk`` of the sum at a step; and how many
    programs there are."""

    bn: int
    pixels: int
    bk: int
    warps: int
    stages: int
    programs: int = 0

    def shared_bytes(self, *, residual: bool) -> int:
        """An upper bound."""
        staged = self.stages * (self.bn + self.pixels) * self.bk
        stored = self.bn * self.pixels * (1 + residual)
        return (staged + stored) * NUMBER_BYTES + BARRIERS_BYTES

    def together(self, device: DeviceFacts, *, residual: bool) -> int:
        """How many programs a multiprocessor holds."""
        registers = self.bn * self.pixels // (32 * self.warps) + _MORE_REGISTERS
        return blocks_together(device, self.shared_bytes(residual=residual), registers, self.warps)


TILES = (
    Tile(128, 256, 64, 8, 3), Tile(256, 128, 64, 8, 3), Tile(128, 256, 64, 8, 2),
    Tile(128, 128, 64, 8, 4), Tile(128, 128, 64, 4, 4), Tile(128, 128, 64, 4, 2),
    Tile(64, 256, 64, 4, 4), Tile(64, 256, 64, 4, 2), Tile(64, 128, 64, 4, 4), Tile(128, 64, 64, 4, 4),
    Tile(64, 64, 64, 4, 5),
    Tile(128, 128, 32, 8, 4), Tile(64, 256, 32, 4, 4), Tile(64, 128, 32, 4, 4), Tile(128, 64, 32, 4, 4),
    Tile(64, 64, 32, 4, 6),
    Tile(128, 128, 16, 8, 6), Tile(64, 256, 16, 4, 6), Tile(64, 128, 16, 4, 6),
)  # fmt: skip


def tiles_of(tile: Tile, window: Window) -> int:
    """How many there are to compute."""
    return window.box(tile.pixels).count(window.written.sizes) * -(-window.outputs // tile.bn)


def steps(tile: Tile, window: Window) -> int:
    """Of one tile's sum."""
    return -(-window.channels // tile.bk) * prod(window.taps)


def tiled_products(tile: Tile, window: Window) -> int:
    """How many products all programs multiply, idle ones too."""
    return tiles_of(tile, window) * steps(tile, window) * tile.bn * tile.pixels * tile.bk


def best_tiles(problem: ConvProblem, device: DeviceFacts, *, count: int) -> tuple[Tile, ...]:
    """The ``count`` that should be fastest, by estimate."""
    window = Window.of(problem)
    held = ((tile, tile.together(device, residual=problem.epilogue.residual)) for tile in TILES)
    placed = [replace(tile, programs=_programs(tile, window, device, together)) for tile, together in held if together]
    return tuple(sorted(placed, key=lambda tile: cycles(tile, window, device))[:count])


def _programs(tile: Tile, window: Window, device: DeviceFacts, together: int) -> int:
    """As many as the device holds, or one for each tile."""
    return min(tiles_of(tile, window), together * sm_count(device))


def cycles(tile: Tile, window: Window, device: DeviceFacts) -> float:
    """A rough time on the busiest multiprocessor: good enough to drop the tiles that cannot win."""
    turns = -(-tiles_of(tile, window) // tile.programs)
    together = -(-tile.programs // sm_count(device))
    products = tile.bn * tile.pixels * tile.bk / products_per_cycle(Arithmetic.FP16_ACC32, tile.bn)
    loads = (tile.bn + tile.pixels) * tile.bk * NUMBER_BYTES / CACHE_BYTES_PER_CYCLE
    stored = tile.bn * tile.pixels * NUMBER_BYTES / CACHE_BYTES_PER_CYCLE
    summed = steps(tile, window) * (max(products, loads) + STEP_CYCLES / together)
    return BLOCK_CYCLES + turns * together * (summed + stored)
