"""The configurations of the implicit GEMM: which tiles there are, and which few are worth trying on a problem."""

from __future__ import annotations

from dataclasses import dataclass

from convwright.backends.triton.configuration import Configuration
from convwright.backends.triton.multiprocessor import (
    BLOCK_CYCLES,
    CACHE_BYTES_PER_CYCLE,
    MOST_WARPS,
    STEP_CYCLES,
    products_per_cycle,
    shared_limit,
    sm_count,
)
from convwright.backends.triton.operands import pixel_count
from convwright.core.device import DeviceFacts
from convwright.core.dtype import Arithmetic
from convwright.core.problem import ConvProblem

MOST_TILES = 8


@dataclass(frozen=True, slots=True)
class Tile(Configuration):
    """What one block computes: ``bm`` pixels by ``bn`` channels, ``bk`` of the sum at a step.

    ``regs`` limits the registers of a thread, so that one more block fits on a multiprocessor.
    """

    bm: int
    bn: int
    bk: int
    warps: int
    stages: int
    regs: int | None = None

    def runs_across_taps(self, channels: int, taps: int) -> bool:
        """Whether a step of the sum may hold several taps. It costs index arithmetic, and saves idle products."""
        padded = -(-channels // self.bk) * self.bk
        return taps > 1 and padded >= 1.3 * channels

    def steps(self, channels: int, taps: int) -> int:
        if self.runs_across_taps(channels, taps):
            return -(-channels * taps // self.bk)
        return -(-channels // self.bk) * taps

    def shared_bytes(self, nbytes: int, *, split: bool) -> int:
        """An upper bound: the compiler saves a stage where an operand goes on to registers."""
        return self.stages * (self.bm + self.bn * (1 + split)) * self.bk * nbytes


_HALF = (
    Tile(128, 256, 64, 8, 3), Tile(256, 128, 64, 8, 3), Tile(256, 64, 64, 8, 4),
    Tile(128, 128, 64, 8, 3), Tile(128, 128, 64, 4, 3), Tile(128, 128, 32, 8, 4),
    Tile(128, 64, 64, 4, 4), Tile(128, 64, 64, 8, 4), Tile(128, 64, 32, 4, 4), Tile(128, 32, 32, 4, 4),
    Tile(64, 128, 64, 4, 4), Tile(64, 64, 64, 4, 4), Tile(64, 64, 128, 4, 3), Tile(64, 64, 32, 4, 4),
    Tile(64, 32, 64, 4, 4), Tile(64, 32, 32, 4, 4), Tile(64, 16, 64, 4, 4),
    Tile(32, 64, 64, 4, 4), Tile(16, 64, 128, 4, 4),
)  # fmt: skip
_TF32 = (
    Tile(256, 64, 32, 8, 4), Tile(128, 128, 32, 8, 3), Tile(128, 128, 32, 8, 4),
    Tile(128, 64, 32, 4, 4), Tile(128, 64, 32, 8, 4), Tile(128, 64, 16, 4, 4), Tile(128, 32, 32, 4, 4),
    Tile(64, 128, 32, 4, 4), Tile(64, 64, 32, 4, 4), Tile(64, 64, 64, 4, 3), Tile(64, 64, 16, 4, 4),
    Tile(64, 32, 32, 4, 4), Tile(64, 16, 32, 4, 4), Tile(32, 64, 32, 4, 4), Tile(16, 64, 64, 4, 4),
)  # fmt: skip
# Half of the registers hold the step's own sum, so larger tiles spill.
_TF32X3 = (
    Tile(128, 128, 32, 8, 3), Tile(128, 128, 16, 8, 4), Tile(128, 64, 64, 8, 2),
    Tile(128, 64, 32, 8, 3, regs=128), Tile(128, 32, 32, 4, 3), Tile(64, 128, 32, 4, 3),
    Tile(64, 64, 32, 4, 3), Tile(64, 64, 16, 4, 4), Tile(64, 32, 32, 4, 4), Tile(64, 16, 32, 4, 4),
    Tile(32, 64, 32, 4, 4), Tile(16, 64, 32, 4, 4),
)  # fmt: skip
TILES = {
    Arithmetic.FP16_ACC32: _HALF,
    Arithmetic.BF16_ACC32: _HALF,
    Arithmetic.TF32: _TF32,
    Arithmetic.TF32X3: _TF32X3,
}


def best_tiles(
    problem: ConvProblem, arithmetic: Arithmetic, device: DeviceFacts, *, split: bool, count: int
) -> tuple[Tile, ...]:
    """The ``count`` tiles that should be fastest, by estimate, the best first."""
    limit, nbytes = shared_limit(device), problem.dtype.nbytes
    fitting = [tile for tile in TILES[arithmetic] if tile.shared_bytes(nbytes, split=split) <= limit]
    ranked = sorted(fitting, key=lambda tile: _cycles(tile, problem, arithmetic, device, split))
    return tuple(ranked[:count])


def _cycles(tile: Tile, problem: ConvProblem, arithmetic: Arithmetic, device: DeviceFacts, split: bool) -> float:
    """A rough time on the busiest multiprocessor: good enough to drop the tiles that cannot win."""
    taps = problem.w.numel // (problem.k * problem.c)
    pixels = pixel_count(problem)
    blocks = -(-pixels // tile.bm) * -(-problem.k // tile.bn)
    mine = -(-blocks // sm_count(device))
    fitting = max(1, shared_limit(device) // tile.shared_bytes(problem.dtype.nbytes, split=split))
    together = min(mine, fitting, MOST_WARPS // tile.warps)
    steps = tile.steps(problem.c, taps)
    products = tile.bm * tile.bn * tile.bk / products_per_cycle(arithmetic, tile.bm)
    loads = (tile.bm + tile.bn * (1 + split)) * tile.bk * problem.dtype.nbytes / CACHE_BYTES_PER_CYCLE
    return mine * (steps * (max(products, loads) + STEP_CYCLES / together) + BLOCK_CYCLES / together)
