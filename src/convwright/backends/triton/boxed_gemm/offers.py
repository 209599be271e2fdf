"""Matrix products with operands in boxes: supported problems, tiles, launches."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import prod

from convwright.backends.triton.boxes.copying import (
    BARRIERS_BYTES,
    DTYPES,
    NUMBER_BYTES,
    aligned_reason,
    architecture_reason,
    blocks_together,
    copying_reason,
    stride_reason,
)
from convwright.backends.triton.boxes.window import Window
from convwright.backends.triton.configuration import Configuration
from convwright.backends.triton.gemm.algorithms import GROUP_M, MOST_TILES
from convwright.backends.triton.launching.kernel_call import KernelCall, TensorMap
from convwright.backends.triton.multiprocessor import (
    BLOCK_CYCLES,
    CACHE_BYTES_PER_CYCLE,
    STEP_CYCLES,
    products_per_cycle,
    sm_count,
)
from convwright.backends.triton.operands import OFFSETS_32_BITS, operand_reason, shape_reason, span
from convwright.core.candidate import Candidate, Offer, Refusal, Source
from convwright.core.device import DeviceFacts
from convwright.core.direction import Direction
from convwright.core.dtype import Arithmetic, native_arithmetic
from convwright.core.policy import Policy
from convwright.core.problem import ConvProblem

KERNEL = "boxed-gemm"
NAME = f"triton/{KERNEL}"
_AT_ONCE = 8  # channels in 16 bytes


def offers(problem: ConvProblem, device: DeviceFacts, policy: Policy) -> Iterator[Offer]:
    """Every configuration worth trying, or the reason why the algorithm does not support the problem."""
    reason = refusal_reason(problem) or architecture_reason(device)
    if reason is not None:
        yield Refusal(NAME, reason)
        return
    for tile in best_tiles(problem, device, count=MOST_TILES):
        yield candidate_of(problem, tile)


def candidate_of(problem: ConvProblem, tile: Tile) -> Candidate:
    return Candidate(
        problem, "triton", KERNEL, tile.config, native_arithmetic(problem.dtype, tf32=False), 0, True, Source.RULE,
        tiled=tiled_products(tile, Window.of(problem)), compiles=True,
    )  # fmt: skip


def cycles_of(candidate: Candidate, device: DeviceFacts) -> float:
    """Estimated cycles of the busiest multiprocessor."""
    return cycles(Tile.of(candidate), Window.of(candidate.problem), device)


def refusal_reason(problem: ConvProblem) -> str | None:
    """Why the kernel cannot compute ``problem``; None if it can."""
    if problem.direction is not Direction.FORWARD:
        return f"computes only the forward direction, got {problem.direction}"
    return (
        shape_reason(problem, DTYPES, volumes=True)
        or operand_reason(problem, {"input": problem.x, "output": problem.y})
        or stride_reason(problem)
        or _channels_reason(problem)
        or aligned_reason("weight", problem.w)
        or copying_reason({"input": problem.x})
        or _written_reason(problem)
    )


def _channels_reason(problem: ConvProblem) -> str | None:
    if problem.c % _AT_ONCE == 0:
        return None
    return f"needs a multiple of {_AT_ONCE} input channels, got {problem.c}"


def _writes_boxes(problem: ConvProblem) -> bool:
    """Whether the copy engine can store the output. It stores whole units of 16 bytes, and the last unit of a row could
    contain channels of another tensor."""
    return problem.k % _AT_ONCE == 0 and copying_reason({"output": problem.y}) is None


def _written_reason(problem: ConvProblem) -> str | None:
    spanned = span(problem.y.shape, problem.y.strides)
    if spanned < OFFSETS_32_BITS or _writes_boxes(problem):
        return None
    return f"needs an output below 2^31 elements if the copy engine cannot store it, got {spanned:,}"


# Configurations and their estimated times.

_MORE_REGISTERS = 56  # besides the sums


@dataclass(frozen=True, slots=True)
class Tile(Configuration):
    """The work of a program at a time: ``bn`` channels by ``pixels`` pixels, ``bk`` of the sum per step."""

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
        """The number of programs that fit on a multiprocessor."""
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
    """The number of tiles."""
    return window.box(tile.pixels).count(window.written.sizes) * -(-window.outputs // tile.bn)


def steps(tile: Tile, window: Window) -> int:
    """Steps of one tile's sum."""
    return -(-window.channels // tile.bk) * prod(window.taps)


def tiled_products(tile: Tile, window: Window) -> int:
    """Multiplications in all programs, including idle ones."""
    return tiles_of(tile, window) * steps(tile, window) * tile.bn * tile.pixels * tile.bk


def best_tiles(problem: ConvProblem, device: DeviceFacts, *, count: int) -> tuple[Tile, ...]:
    """The ``count`` tiles with the lowest estimates."""
    window = Window.of(problem)
    held = ((tile, tile.together(device, residual=problem.epilogue.residual)) for tile in TILES)
    placed = [replace(tile, programs=_programs(tile, window, device, together)) for tile, together in held if together]
    return tuple(sorted(placed, key=lambda tile: cycles(tile, window, device))[:count])


def _programs(tile: Tile, window: Window, device: DeviceFacts, together: int) -> int:
    """As many as the device holds, or one per tile."""
    return min(tiles_of(tile, window), together * sm_count(device))


def cycles(tile: Tile, window: Window, device: DeviceFacts) -> float:
    """A rough time on the busiest multiprocessor, good enough to drop tiles that cannot win."""
    turns = -(-tiles_of(tile, window) // tile.programs)
    together = -(-tile.programs // sm_count(device))
    products = tile.bn * tile.pixels * tile.bk / products_per_cycle(Arithmetic.FP16_ACC32, tile.bn)
    loads = (tile.bn + tile.pixels) * tile.bk * NUMBER_BYTES / CACHE_BYTES_PER_CYCLE
    stored = tile.bn * tile.pixels * NUMBER_BYTES / CACHE_BYTES_PER_CYCLE
    summed = steps(tile, window) * (max(products, loads) + STEP_CYCLES / together)
    return BLOCK_CYCLES + turns * together * (summed + stored)


# Launches.


def constants(problem: ConvProblem, tile: Tile) -> dict[str, int | bool | str]:
    """Compile-time constants of the kernel."""
    window, boxes = Window.of(problem), _writes_boxes(problem)
    images = (window.written.sizes[0], *window.written.strides)
    lying = dict(zip(("N", "Y_N", "Y_D", "Y_H", "Y_W"), (0, 0, 0, 0, 0) if boxes else images, strict=True))
    return window.constants(window.box(tile.pixels)) | lying | {
        "WRITES_BOXES": boxes,
        "BIAS": problem.epilogue.bias, "RESIDUAL": problem.epilogue.residual,
        "ACTIVATION": problem.epilogue.activation.value,
        "BN": tile.bn, "BK": tile.bk, "GROUP_M": GROUP_M, "PROGRAMS": tile.programs,
    }  # fmt: skip


def maps(problem: ConvProblem, tile: Tile) -> dict[str, TensorMap]:
    """The copy engine's descriptors of the operands."""
    window = Window.of(problem)
    values = window.maps(window.box(tile.pixels), tile.bn, tile.bk)
    if not _writes_boxes(problem):
        del values["y"]
    elif problem.epilogue.residual:
        values["residual"] = values["y"]
    return values


def kernel_calls(candidate: Candidate) -> tuple[KernelCall, ...]:
    """The kernels to launch."""
    from convwright.backends.triton.boxed_gemm.kernel import boxed_gemm

    problem, tile = candidate.problem, Tile.of(candidate)
    x, w, y = ((spec.dtype.value, spec.alignment) for spec in (problem.x, problem.w, problem.y))
    bias = (problem.dtype.added.value, problem.dtype.added.nbytes)
    return (
        KernelCall(
            boxed_gemm, {"x": x, "w": w, "bias": bias, "residual": y, "y": y}, constants(problem, tile),
            tile.programs, tile.warps, tile.stages, maps=maps(problem, tile),
        ),
    )  # fmt: skip
