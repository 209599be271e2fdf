"""The configurations of Winograd's products, and which few are worth trying on a problem."""

from __future__ import annotations

from convwright.backends.triton.gemm.tiles import Tile
from convwright.backends.triton.multiprocessor import (
    BLOCK_CYCLES,
    CACHE_BYTES_PER_CYCLE,
    MORE_KERNEL_CYCLES,
    REGISTERS,
    STEP_CYCLES,
    products_per_cycle,
    shared_limit,
    sm_count,
)
from convwright.backends.triton.operands import pixel_count
from convwright.backends.triton.winograd.patches import POINTS, patch_count, pitch, points_bytes
from convwright.core.device import DeviceFacts
from convwright.core.dtype import Arithmetic
from convwright.core.problem import ConvProblem

_MOST_OF_A_THREAD = 256  # registers

# A thread holds six tiles of sums, so larger tiles spill. The limit lets a third block fit on a multiprocessor.
TILES = (
    Tile(128, 64, 32, 8, 3), Tile(64, 64, 32, 4, 3), Tile(64, 32, 32, 4, 4, regs=168), Tile(32, 64, 32, 4, 3),
)  # fmt: skip


def tiles_of(tile: Tile, problem: ConvProblem) -> int:
    """How many blocks compute the output."""
    return -(-patch_count(problem) // tile.bm) * -(-problem.k // tile.bn)


def best_tiles(problem: ConvProblem, device: DeviceFacts, *, packed: bool, count: int) -> tuple[Tile, ...]:
    """The ``count`` tiles that should be fastest, by estimate, the best first."""
    limit = shared_limit(device)
    fitting = [tile for tile in TILES if tile.shared_bytes(4, split=packed) <= limit]
    return tuple(sorted(fitting, key=lambda tile: cycles(tile, problem, device, packed=packed))[:count])


def cycles(tile: Tile, problem: ConvProblem, device: DeviceFacts, *, packed: bool) -> float:
    """A rough time of both kernels: good enough to drop what cannot win."""
    sms = sm_count(device)
    each = -(-tiles_of(tile, problem) // sms)
    fitting = max(1, shared_limit(device) // tile.shared_bytes(4, split=packed))
    together = min(each, fitting, REGISTERS // (32 * tile.warps * (tile.regs or _MOST_OF_A_THREAD)))
    products = tile.bm * tile.bn * tile.bk / products_per_cycle(Arithmetic.TF32X3, tile.bm)
    loads = (tile.bm + tile.bn * (1 + packed)) * tile.bk * 4 / CACHE_BYTES_PER_CYCLE
    steps = POINTS * -(-pitch(problem) // tile.bk)
    block = steps * (max(products, loads) + STEP_CYCLES / together) + BLOCK_CYCLES / together
    transform = (points_bytes(problem) + problem.x.nbytes) / (sms * CACHE_BYTES_PER_CYCLE) + MORE_KERNEL_CYCLES
    return each * block + transform


def implicit_gemm_cycles(problem: ConvProblem, device: DeviceFacts) -> float:
    """What the same arithmetic takes without transforms, were all multiprocessors busy with nothing else."""
    products = 9 * pixel_count(problem) * problem.c * problem.k
    return products / (sm_count(device) * products_per_cycle(Arithmetic.TF32X3, 64)) + BLOCK_CYCLES
