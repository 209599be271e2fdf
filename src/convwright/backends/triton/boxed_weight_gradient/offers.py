"""Weight gradients with operands in boxes: supported problems, tiles, launches."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import prod

from convwright.backends.triton.boxes.copying import (
    BARRIERS_BYTES,
    DTYPES,
    NUMBER_BYTES,
    architecture_reason,
    blocks_together,
    copying_reason,
    stride_reason,
)
from convwright.backends.triton.boxes.window import Window
from convwright.backends.triton.configuration import Configuration
from convwright.backends.triton.gemm.algorithms import MOST_TILES
from convwright.backends.triton.launching.kernel_call import WORKSPACE, KernelCall, TensorMap
from convwright.backends.triton.multiprocessor import (
    CACHE_BYTES_PER_CYCLE,
    parts_that_fill,
    products_per_cycle,
    sm_count,
)
from convwright.backends.triton.operands import operand_reason, shape_reason, weight_reason
from convwright.backends.triton.parts.sums import (
    BLOCKS_EACH,
    MOST_PIXELS_OF_A_PART,
    SUM_BYTES,
    adding_cycles,
    promising,
    sum_call,
)
from convwright.core.candidate import Candidate, Offer, Refusal, Source
from convwright.core.device import DeviceFacts
from convwright.core.direction import Direction
from convwright.core.dtype import Arithmetic, native_arithmetic
from convwright.core.policy import Policy
from convwright.core.problem import ConvProblem

KERNEL = "boxed-weight-gradient"
NAME = f"triton/{KERNEL}"
_LEAST_CHANNELS = 16


def offers(problem: ConvProblem, device: DeviceFacts, policy: Policy) -> Iterator[Offer]:
    """Every configuration worth trying, or the reason why the algorithm does not support the problem."""
    reason = refusal_reason(problem) or architecture_reason(device)
    if reason is not None:
        yield Refusal(NAME, reason)
        return
    for tile in best_tiles(problem, device, count=MOST_TILES):
        yield candidate_of(problem, tile)


def candidate_of(problem: ConvProblem, tile: Tile) -> Candidate:
    arithmetic, sums = native_arithmetic(problem.dtype, tf32=False), tile.parts * problem.w.numel * SUM_BYTES
    return Candidate(
        problem, "triton", KERNEL, tile.config, arithmetic, sums, True, Source.RULE,
        tiled=tiled_products(tile, problem), compiles=True,
    )  # fmt: skip


def cycles_of(candidate: Candidate, device: DeviceFacts) -> float:
    """Estimated cycles of the busiest multiprocessor."""
    return cycles(Tile.of(candidate), candidate.problem, device)


def refusal_reason(problem: ConvProblem) -> str | None:
    """Why the kernel cannot compute ``problem``; None if it can."""
    if problem.direction is not Direction.BACKWARD_WEIGHT:
        return f"computes only weight gradients, got {problem.direction}"
    images = {"input": problem.x, "gradient": problem.y}
    return (
        shape_reason(problem, DTYPES, volumes=True)
        or operand_reason(problem, images)
        or weight_reason(problem)
        or _channels_reason(problem)
        or stride_reason(problem)
        or copying_reason(images)
    )


def _channels_reason(problem: ConvProblem) -> str | None:
    if min(problem.c, problem.k) >= _LEAST_CHANNELS:
        return None
    return f"needs at least {_LEAST_CHANNELS} input and output channels, got {problem.c} and {problem.k}"


# Configurations and their estimated times.

_MORE_REGISTERS = 72  # besides the sums
# The costs of: a block's start, the end of a step, where it waits for tensor cores, writing the sums of a tile, and
# adding parts. With these, the first of 44 layers' configurations took 1.08 times as long as the fastest, and the best
# of the first three 1.02 (14 configurations each, H100). Boxes that read pixels outside the output cost extra.
_BLOCK_CYCLES, _STEP_CYCLES, _WRITTEN_PER_CYCLE, _TIMES_SUMS, _TIMES_BESIDE = 1000, 50, 16, 3, 1.3


@dataclass(frozen=True, slots=True)
class Tile(Configuration):
    """The work of one block: ``bm`` input channels of a tap by ``bn`` output channels, a box of ``pixels`` per step,
    over one of ``parts`` of all boxes."""

    bm: int
    bn: int
    pixels: int
    parts: int
    warps: int
    stages: int

    def shared_bytes(self) -> int:
        """An upper bound: boxes, then the sum of a tile while it is stored."""
        staged = self.stages * (self.bm + self.bn) * self.pixels * NUMBER_BYTES
        turned = (self.bm + 4) * (self.bn + 4) * SUM_BYTES
        return max(staged, turned) + self.bm * self.pixels * NUMBER_BYTES + BARRIERS_BYTES

    def together(self, device: DeviceFacts) -> int:
        """The number of blocks that fit on a multiprocessor."""
        registers = self.bm * self.bn // (32 * self.warps) + _MORE_REGISTERS
        return blocks_together(device, self.shared_bytes(), registers, self.warps)


def _tile(bm: int, bn: int, pixels: int, warps: int, stages: int) -> Tile:
    return Tile(bm, bn, pixels, 1, warps, stages)


TILES = (
    _tile(128, 256, 64, 8, 3), _tile(128, 128, 64, 8, 4), _tile(128, 128, 64, 4, 3),
    _tile(64, 256, 64, 4, 4), _tile(64, 128, 64, 4, 4), _tile(128, 64, 64, 4, 4), _tile(64, 64, 64, 4, 5),
    _tile(128, 256, 32, 8, 4), _tile(128, 128, 32, 4, 4), _tile(64, 256, 32, 4, 6),
    _tile(64, 128, 32, 4, 6), _tile(64, 64, 32, 4, 6), _tile(64, 64, 128, 4, 3), _tile(64, 32, 64, 4, 5),
)  # fmt: skip


def products_of(tile: Tile, problem: ConvProblem) -> int:
    """The number of blocks that compute one part."""
    channels = -(-problem.c // tile.bm)
    return prod(problem.taps) * channels * -(-problem.k // tile.bn)


def boxes_of(tile: Tile, problem: ConvProblem) -> int:
    """The number of boxes in the sum."""
    window = Window.of(problem)
    return window.box(tile.pixels).count(window.written.sizes)


def steps(tile: Tile, problem: ConvProblem) -> int:
    """Steps of one part."""
    return -(-boxes_of(tile, problem) // tile.parts)


def tiled_products(tile: Tile, problem: ConvProblem) -> int:
    """Multiplications in all blocks, including idle ones."""
    each = tile.bm * tile.bn * tile.pixels
    return products_of(tile, problem) * tile.parts * steps(tile, problem) * each


def best_tiles(problem: ConvProblem, device: DeviceFacts, *, count: int) -> tuple[Tile, ...]:
    """The ``count`` tiles with the lowest estimates, best first."""

    def taken(tile: Tile) -> float:
        return cycles(tile, problem, device)

    fitting = [_parted(tile, problem, device) for tile in TILES if tile.together(device)]
    return tuple(sorted(promising(fitting, taken, count), key=taken))


def _parted(tile: Tile, problem: ConvProblem, device: DeviceFacts) -> Iterator[Tile]:
    """The tile with each number of parts that fills all multiprocessors."""
    boxes, blocks = boxes_of(tile, problem), [each * sm_count(device) for each in BLOCKS_EACH]
    least = -(-boxes * tile.pixels // MOST_PIXELS_OF_A_PART)
    for parts in parts_that_fill(products_of(tile, problem), boxes, blocks, least=least):
        yield replace(tile, parts=parts)


def cycles(tile: Tile, problem: ConvProblem, device: DeviceFacts) -> float:
    """A rough time on the busiest multiprocessor, good enough to drop configurations that cannot win."""
    mine = -(-products_of(tile, problem) * tile.parts // sm_count(device))
    together = min(mine, tile.together(device))
    products = tile.bm * tile.bn * tile.pixels / products_per_cycle(Arithmetic.FP16_ACC32, tile.bm)
    loads = (tile.bm + tile.bn) * tile.pixels * NUMBER_BYTES / CACHE_BYTES_PER_CYCLE
    step = max(products, loads) + _STEP_CYCLES / together
    if any(reads_beside(tile, problem)):
        step *= _TIMES_BESIDE
    written = tile.bm * tile.bn * SUM_BYTES / _WRITTEN_PER_CYCLE
    block = steps(tile, problem) * step + _BLOCK_CYCLES / together + written
    return mine * block + _TIMES_SUMS * adding_cycles(problem, tile.parts, device)


def reads_beside(tile: Tile, problem: ConvProblem) -> tuple[bool, bool, bool]:
    """Whether, along planes, rows and columns, a box has pixels outside the output that would read the input."""
    window = Window.of(problem)
    read, written, sides = window.read.sizes[1:], window.written.sizes[1:], window.box(tile.pixels).sides[1:]
    first = (size * stride - ahead for size, stride, ahead in zip(written, window.stride, window.ahead, strict=True))
    planes, rows, columns = (
        size % side != 0 and at < within for size, side, at, within in zip(written, sides, first, read, strict=True)
    )
    return planes, rows, columns


# Launches.


def blocks(problem: ConvProblem, tile: Tile) -> int:
    """The number of programs of the product."""
    return products_of(tile, problem) * tile.parts


def constants(problem: ConvProblem, tile: Tile) -> dict[str, int | bool]:
    """Compile-time constants of the product kernel."""
    window = Window.of(problem)
    values = window.constants(window.box(tile.pixels))
    del values["FLIP"]  # the kernel that adds the parts mirrors the taps
    sides = dict(zip(("BESIDE_D", "BESIDE_H", "BESIDE_W"), reads_beside(tile, problem), strict=True))
    return values | sides | {"PARTS": tile.parts, "BM": tile.bm, "BN": tile.bn}


def maps(problem: ConvProblem, tile: Tile) -> dict[str, TensorMap]:
    """The copy engine's descriptors of the operands."""
    window = Window.of(problem)
    box = window.box(tile.pixels)
    return {
        "x": window.read.map(problem.c, box, tile.bm, window.stride),
        "dy": window.written.map(problem.k, box, tile.bn, (1, 1, 1)),
    }


def kernel_calls(candidate: Candidate) -> tuple[KernelCall, KernelCall]:
    """The kernels to launch: the product, and the kernel that adds its parts."""
    from convwright.backends.triton.boxed_weight_gradient.kernel import boxed_weight_gradient

    problem, tile = candidate.problem, Tile.of(candidate)
    x, dy = ((spec.dtype.value, spec.alignment) for spec in (problem.x, problem.y))
    product = KernelCall(
        boxed_weight_gradient, {"x": x, "dy": dy, "sums": WORKSPACE}, constants(problem, tile), blocks(problem, tile),
        tile.warps, tile.stages, maps=maps(problem, tile),
    )  # fmt: skip
    return product, sum_call(problem, tile.parts)
