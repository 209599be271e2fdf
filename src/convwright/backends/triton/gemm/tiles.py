"""The tiles of matrix products that multiply by a weight."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from convwright.backends.triton.configuration import Configuration
from convwright.core.dtype import Arithmetic
from convwright.core.error_bound import MOST_IN_FP16


@dataclass(frozen=True, slots=True)
class Tile(Configuration):
    """The work of one block: ``bm`` pixels by ``bn`` channels, ``bk`` of the sum per step, over the whole sum or one of
    ``parts``.

    ``regs`` limits the registers of a thread, so that one more block fits on a multiprocessor.
    """

    bm: int
    bn: int
    bk: int
    warps: int
    stages: int
    regs: int | None = None
    parts: int | None = None

    @property
    def in_parts(self) -> bool:
        return (self.parts or 1) > 1

    def runs_across_taps(self, channels: int, taps: int) -> bool:
        """Whether a step of the sum may span several taps. That costs index arithmetic and saves idle products."""
        padded = -(-channels // self.bk) * self.bk
        return taps > 1 and padded >= 1.3 * channels

    def steps(self, channels: int, taps: int) -> int:
        if self.runs_across_taps(channels, taps):
            return -(-channels * taps // self.bk)
        return -(-channels // self.bk) * taps

    def steps_each(self, channels: int, taps: int) -> int:
        """Of one part."""
        return -(-self.steps(channels, taps) // (self.parts or 1))

    def products(self, steps: int) -> int:
        """Multiplications of one block in so many steps."""
        return self.bm * self.bn * self.bk * steps

    def shared_bytes(self, nbytes: int, *, split: bool) -> int:
        """An upper bound: the compiler saves a stage if an operand goes on to registers, and needs room for both parts
        of a weight that comes back from there."""
        held = self.stages * (self.bm + self.bn * (1 + split))
        if nbytes == 4 and not split:
            held = max(held, (self.stages - 1) * (self.bm + self.bn) + 2 * self.bn)
        return held * self.bk * nbytes


_HALF = (
    Tile(128, 256, 64, 8, 3), Tile(256, 128, 64, 8, 3), Tile(256, 64, 64, 8, 4),
    Tile(128, 128, 64, 8, 3), Tile(128, 128, 64, 4, 3), Tile(128, 128, 32, 8, 4),
    Tile(128, 64, 64, 4, 4), Tile(128, 64, 64, 8, 4), Tile(128, 64, 32, 4, 4), Tile(128, 32, 32, 4, 4),
    Tile(64, 128, 64, 4, 4), Tile(64, 64, 64, 4, 4), Tile(64, 64, 128, 4, 3), Tile(64, 64, 32, 4, 4),
    Tile(64, 32, 64, 4, 4), Tile(64, 32, 32, 4, 4), Tile(64, 16, 64, 4, 4),
    Tile(32, 64, 64, 4, 4), Tile(16, 64, 128, 4, 4), Tile(16, 32, 128, 4, 4), Tile(16, 16, 128, 4, 4),
    Tile(128, 16, 64, 4, 4), Tile(128, 16, 32, 4, 4),
)  # fmt: skip
_TF32 = (
    Tile(256, 64, 32, 8, 4), Tile(128, 128, 32, 8, 3), Tile(128, 128, 32, 8, 4),
    Tile(128, 64, 32, 4, 4), Tile(128, 64, 32, 8, 4), Tile(128, 64, 16, 4, 4), Tile(128, 32, 32, 4, 4),
    Tile(64, 128, 32, 4, 4), Tile(64, 64, 32, 4, 4), Tile(64, 64, 64, 4, 3), Tile(64, 64, 16, 4, 4),
    Tile(64, 32, 32, 4, 4), Tile(64, 16, 32, 4, 4), Tile(32, 64, 32, 4, 4), Tile(16, 64, 64, 4, 4),
    Tile(128, 16, 32, 4, 4),
)  # fmt: skip
# Half of the registers hold the sum of the step, so larger tiles spill.
_TF32X3 = (
    Tile(128, 128, 32, 8, 3), Tile(128, 128, 16, 8, 4), Tile(128, 64, 64, 8, 2),
    Tile(128, 64, 32, 8, 3, regs=128), Tile(128, 32, 32, 4, 3), Tile(64, 128, 32, 4, 3),
    Tile(64, 64, 32, 4, 3), Tile(64, 64, 16, 4, 4), Tile(64, 32, 32, 4, 4), Tile(64, 16, 32, 4, 4),
    Tile(32, 64, 32, 4, 4), Tile(16, 64, 32, 4, 4),
    Tile(128, 16, 32, 4, 3),
)  # fmt: skip
# One-byte numbers need twice as many for a step of as many bytes.
_INT8 = tuple(replace(tile, bk=2 * tile.bk) for tile in _HALF if tile.bk <= 64)
# There is also the sum of the step: more than 64 elements per thread spill.
_FP8 = tuple(tile for tile in _INT8 if tile.bm * tile.bn <= 64 * 32 * tile.warps)
# A step is no longer than fp16 sums may be.
_ACC16 = tuple(tile for tile in _HALF if tile.bk <= MOST_IN_FP16)
TILES = {
    Arithmetic.FP16_ACC32: _HALF,
    Arithmetic.FP16_ACC16: _ACC16,
    Arithmetic.BF16_ACC32: _HALF,
    Arithmetic.INT8: _INT8,
    Arithmetic.FP8_ACC32: _FP8,
    Arithmetic.TF32: _TF32,
    Arithmetic.TF32X3: _TF32X3,
}


def tiles(arithmetic: Arithmetic, *, split: bool) -> tuple[Tile, ...]:
    """All tiles for an arithmetic."""
    # With a split weight, addresses take the registers that a limit would save: dozens would spill.
    return tuple(replace(tile, regs=None) for tile in TILES[arithmetic]) if split else TILES[arithmetic]


def shapes_first(ranked: Sequence[Tile]) -> tuple[Tile, ...]:
    """In the given order, but one tile of each shape before those that differ only in stages or steps: if not all can
    be compiled, shapes matter most, since estimates are least certain about them."""
    first = {_shape(tile): tile for tile in reversed(ranked)}
    return tuple(sorted(ranked, key=lambda tile: first[_shape(tile)] is not tile))


def _shape(tile: Tile) -> tuple[int, int, bool]:
    return tile.bm, tile.bn, tile.in_parts
