"""Depthwise convolutions with large filters, by products with band matrices: supported problems, tiles, launches."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from math import prod

from convwright.backends.triton.configuration import Configuration
from convwright.backends.triton.launching.kernel_call import KernelCall
from convwright.backends.triton.multiprocessor import (
    BLOCK_CYCLES,
    CACHE_BYTES_PER_CYCLE,
    MOST_WARPS,
    STEP_CYCLES,
    products_per_cycle,
    shared_limit,
    sm_count,
)
from convwright.backends.triton.operands import (
    channel_constants,
    group_sizes,
    pair,
    power_of_two,
    shape_reason,
    size_reason,
    weight_reason,
    weight_strides,
    window_constants,
)
from convwright.core.candidate import Candidate, Offer, Refusal, Source
from convwright.core.device import DeviceFacts
from convwright.core.direction import Direction
from convwright.core.dtype import DType, native_arithmetic
from convwright.core.policy import Policy
from convwright.core.problem import ConvProblem
from convwright.core.tensor_spec import TensorSpec
from convwright.core.turned import turned, why_not_turned

ALGORITHM = "banded-gemm"
NAME = f"triton/{ALGORITHM}"
_DTYPES = (DType.FP16, DType.BF16)
# With fewer taps the kernels without matrix products are faster: with 25 taps by half; with 49 both are equal (H100).
_LEAST_TAPS = 36
_FEW = 8  # pixels of each block that a program computes at a time, if it computes them one by one


def offers(problem: ConvProblem, device: DeviceFacts, policy: Policy) -> Iterator[Offer]:
    """Every configuration worth trying, or the reason why the algorithm does not support the problem."""
    reason = refusal_reason(problem)
    if reason is not None:
        yield Refusal(NAME, reason)
        return
    tiles = best_tiles(forward_of(problem), device)
    if not tiles:
        yield Refusal(NAME, f"supports only fewer taps and channels, got {problem.taps} and {problem.k}")
    for tile in tiles:
        yield candidate_of(problem, tile)


def candidate_of(problem: ConvProblem, tile: Tile) -> Candidate:
    return Candidate(
        problem, "triton", ALGORITHM, tile.config, native_arithmetic(problem.dtype, tf32=False), 0, True, Source.RULE,
        tiled=tile.products(forward_of(problem)), compiles=True,
    )  # fmt: skip


def cycles_of(candidate: Candidate, device: DeviceFacts) -> float:
    """Estimated cycles of the busiest multiprocessor."""
    return cycles(Tile.of(candidate), forward_of(candidate.problem), device)


def refusal_reason(problem: ConvProblem) -> str | None:
    """Why the kernel cannot compute ``problem``; None if it can."""
    if problem.direction is Direction.BACKWARD_WEIGHT:
        return f"computes only the forward direction and input gradients, got {problem.direction}"
    operands = {"input": problem.x, "output": problem.y}
    return (
        shape_reason(problem, _DTYPES, groups=True)
        or _window_reason(problem)
        or _gradient_reason(problem)
        or _width_reason(operands)
        or size_reason(problem, operands)
        or weight_reason(problem)
    )


def _window_reason(problem: ConvProblem) -> str | None:
    inputs, _ = group_sizes(problem)
    if inputs != 1:
        return f"needs one input channel per group, got {inputs}"
    taps = prod(problem.taps)
    return None if taps >= _LEAST_TAPS else f"needs at least {_LEAST_TAPS} taps, got {taps}"


def _gradient_reason(problem: ConvProblem) -> str | None:
    if problem.direction is Direction.FORWARD:
        return None
    _, outputs = group_sizes(problem)
    return why_not_turned(problem) or (
        None if outputs == 1 else f"needs one output channel per group for a gradient, got {outputs}"
    )


def _width_reason(named: Mapping[str, TensorSpec]) -> str | None:
    for name, spec in named.items():
        if spec.shape[-1] > 1 and spec.strides[-1] != 1:
            return f"needs stride 1 along the width of `{name}`, got {spec.strides[-1]}"
    return None


# The forward convolution that the kernels compute.


def forward_of(problem: ConvProblem) -> ConvProblem:
    """The problem itself; for an input gradient, the convolution of dy with mirrored taps."""
    if problem.direction is Direction.FORWARD:
        return problem
    return replace(turned(problem, problem.w), flip=not problem.flip)


# Configurations and their estimated times.

NUMBER_BYTES = 2
MOST_TILES = 8
_LEAST_PIXELS = 16  # of the sum per step of a product
_MOST_TOGETHER = 8  # elements that a thread reads at once
# Blocks, pixels of all blocks together, and warps.
_SHAPES = ((128, 64, 4), (128, 128, 4), (128, 256, 8), (256, 64, 8), (256, 128, 8), (64, 128, 4), (64, 64, 4))
_COLUMNS = (8, 16, 32, 64, 128)
_MOST_STAGES = 3
# For a thread that reads elements one by one, through registers.
_MOST_SUMS, _WARP = 64, 32
_MOST_READ, _MOST_PACKED_BYTES = 256, 2**27  # pixels of a row, and bytes of the bands of all channels


@dataclass(frozen=True, slots=True)
class Tile(Configuration):
    """The work of one program: ``bm`` blocks of ``bp`` rows by ``bq`` columns of a channel's output, padded to ``bn``
    pixels."""

    bm: int
    bn: int
    bp: int
    bq: int
    warps: int
    stages: int

    def blocks(self, problem: ConvProblem) -> int:
        """Of one channel, in all images."""
        P, Q = pair(problem.y.shape[2:], 1)
        return problem.n * -(-P // self.bp) * -(-Q // self.bq)

    def programs(self, problem: ConvProblem) -> int:
        """Of one channel."""
        return -(-self.blocks(problem) // self.bm)

    def rows(self, problem: ConvProblem) -> int:
        """Input rows that a block reads."""
        (stride, _), (dilation, _), (R, _) = _window(problem)
        return (self.bp - 1) * stride + (R - 1) * dilation + 1

    def columns(self, problem: ConvProblem) -> int:
        """Input pixels that a block reads of a row, rounded up to a power of two."""
        whole, window = _filled(pair(problem.x.shape[2:], 1)[1]), self._window_columns(problem)
        is_whole = self.bq >= pair(problem.y.shape[2:], 1)[1]
        return min(whole, window) if is_whole else window

    def before(self, problem: ConvProblem) -> int:
        """Pixels that are read before the first tap's pixel, so that reads of a row are aligned for vector loads. Fewer
        if these pixels are outside the image."""
        left = problem.padding[-1][0]
        return -left if self.columns(problem) < self._window_columns(problem) else _aligned(problem)

    def steps(self, problem: ConvProblem) -> list[int]:
        """The rows that each program of one channel multiplies. Rows outside the image for all of its blocks are
        skipped."""
        (P, _), (H, _), (stride, _) = (
            pair(each, 1) for each in (problem.y.shape[2:], problem.x.shape[2:], problem.stride)
        )
        top = problem.padding[0][0] if problem.rank > 1 else 0
        blocks = self.blocks(problem)
        abreast = blocks // -(-P // self.bp)  # blocks of the same rows
        taken = []
        for first in range(0, blocks, self.bm):
            last = min(first + self.bm, blocks) - 1
            highest, lowest = (at // abreast * self.bp * stride - top for at in (first, last))
            taken.append(max(0, min(self.rows(problem), H - highest) - max(0, -lowest)))
        return taken

    def first(self, problem: ConvProblem) -> int:
        """Bands of zeros before the band of the first row of taps: rows of the tile that its last output row does not
        read."""
        (stride, _), _, _ = _window(problem)
        return (self.bn // self.bq - 1) * stride

    def bands(self, problem: ConvProblem) -> int:
        """Of one channel."""
        return self.first(problem) + self.rows(problem)

    def products(self, problem: ConvProblem) -> int:
        """Multiplications in all programs, including zeros."""
        each = self.bm * self.bn * self.columns(problem)
        return each * sum(self.steps(problem)) * problem.k

    def packed_bytes(self, problem: ConvProblem) -> int:
        """Of the bands of all channels."""
        return problem.k * self.bands(problem) * self.bq * self.columns(problem) * NUMBER_BYTES

    def shared_bytes(self, problem: ConvProblem) -> int:
        """An upper bound."""
        read = self.stages * (self.bm + self.bn) * self.columns(problem)
        return max(read, self.bm * self.bn * 2) * NUMBER_BYTES

    def _window_columns(self, problem: ConvProblem) -> int:
        """Pixels of a row that the taps of a block read, rounded up."""
        (_, stride), (_, dilation), (_, S) = _window(problem)
        return _filled(_aligned(problem) + (self.bq - 1) * stride + (S - 1) * dilation + 1)


def _filled(pixels: int) -> int:
    return max(power_of_two(pixels), _LEAST_PIXELS)


def _aligned(problem: ConvProblem) -> int:
    """Pixels between an aligned address for vector loads and the first tap's pixel."""
    left = problem.padding[-1][0]
    return -left % together(problem)


def together(problem: ConvProblem) -> int:
    """Pixels of a row that one load can read, at any row."""
    x, many = problem.x, _MOST_TOGETHER
    moved = [stride for size, stride in zip(x.shape[:-1], x.strides[:-1], strict=True) if size > 1]
    while many > 1 and (x.alignment % (many * NUMBER_BYTES) or any(each % many for each in (x.shape[-1], *moved))):
        many //= 2
    return many


def best_tiles(problem: ConvProblem, device: DeviceFacts, count: int = MOST_TILES) -> tuple[Tile, ...]:
    """The ``count`` tiles with the lowest estimates, best first."""
    return tuple(sorted(_tiles(problem, device), key=lambda tile: cycles(tile, problem, device))[:count])


def _tiles(problem: ConvProblem, device: DeviceFacts) -> Iterator[Tile]:
    """All tiles that fit a multiprocessor. Their rows divide the output's rows as evenly as possible."""
    P, Q = pair(problem.y.shape[2:], 1)
    room, one_by_one = shared_limit(device), together(problem) == 1
    for bq in _COLUMNS:
        if bq > _COLUMNS[0] and bq >= 2 * Q:
            break
        for bm, bn, warps in _SHAPES:
            if bn < bq or (one_by_one and bm * bn > _MOST_SUMS * _WARP * warps):
                continue
            most = min(bn // bq, P)
            bp = -(-P // -(-P // most))
            if _is_idle(bn, bp * bq) or Tile(bm, bn, bp, bq, warps, 1).columns(problem) > _MOST_READ:
                continue
            fitting = (Tile(bm, bn, bp, bq, warps, stages) for stages in range(_MOST_STAGES, 0, -1))
            tile = next((each for each in fitting if each.shared_bytes(problem) <= room), None)
            if tile is not None and tile.packed_bytes(problem) <= _MOST_PACKED_BYTES:
                yield tile


def _is_idle(bn: int, pixels: int) -> bool:
    """Whether half of a tile is unused although a tile of half the width exists."""
    return 2 * pixels <= bn > _SHAPES[0][1]


def cycles(tile: Tile, problem: ConvProblem, device: DeviceFacts) -> float:
    """A rough time on the busiest multiprocessor, good enough to drop tiles that cannot win."""
    sms, width = sm_count(device), tile.columns(problem)
    rate = products_per_cycle(native_arithmetic(problem.dtype, tf32=False), tile.bm)
    products = tile.bm * tile.bn * width / rate
    loads = (tile.bm + tile.bn) * width * NUMBER_BYTES / CACHE_BYTES_PER_CYCLE
    together = max(1, min(MOST_WARPS // tile.warps, shared_limit(device) // tile.shared_bytes(problem)))
    written = tile.bm * tile.bp * tile.bq * NUMBER_BYTES / CACHE_BYTES_PER_CYCLE
    step = max(products, loads) + STEP_CYCLES / together
    each = -(-tile.programs(problem) * problem.k // sms)
    steps = tile.steps(problem)
    return each * (sum(steps) / len(steps) * step + written + BLOCK_CYCLES / together)


def _window(problem: ConvProblem) -> tuple[tuple[int, int], tuple[int, int], tuple[int, int]]:
    """Strides, dilations and taps of rows and columns."""
    return pair(problem.stride, 1), pair(problem.dilation, 1), pair(problem.taps, 1)


# Launches.


def constants(problem: ConvProblem, tile: Tile) -> dict[str, int | bool | str]:
    """Compile-time constants of the product kernel, for a forward convolution."""
    values = window_constants(problem) | channel_constants(problem) | _tap_positions(problem, tile)
    _, outputs = group_sizes(problem)
    values |= {
        "EACH": outputs, "READ": tile.rows(problem), "BM": tile.bm, "BN": tile.bn, "BP": tile.bp,
        "STAGES": tile.stages, "FEW": _FEW, "BIAS": problem.epilogue.bias, "RESIDUAL": problem.epilogue.residual,
    }  # fmt: skip
    unknown = ("C", "K", "FLIP", "PADDED")
    kept = {name: value for name, value in values.items() if name not in unknown}
    return kept | {"ACTIVATION": problem.epilogue.activation.value}


def band_constants(problem: ConvProblem, tile: Tile) -> dict[str, int | bool]:
    """Compile-time constants of the kernel that writes the bands, for a forward convolution."""
    values = window_constants(problem) | weight_strides(problem) | _tap_positions(problem, tile)
    needed = (
        "R", "S", "W_K", "W_R", "W_S", "STRIDE_H", "STRIDE_W", "DILATION_H", "DILATION_W", "FLIP",
        "BEFORE", "FIRST", "BANDS", "BQ", "XW",
    )  # fmt: skip
    return {name: values[name] for name in needed}


def _tap_positions(problem: ConvProblem, tile: Tile) -> dict[str, int | bool]:
    """The positions of the taps in the bands, for both kernels."""
    return {
        "BEFORE": tile.before(problem), "FIRST": tile.first(problem), "BANDS": tile.bands(problem),
        "BQ": tile.bq, "XW": tile.columns(problem),
    }  # fmt: skip


_BAND_WARPS = 4


def kernel_calls(candidate: Candidate) -> tuple[KernelCall, KernelCall]:
    """The kernels to launch: the products, and the kernel that writes the bands."""
    from convwright.backends.triton.banded_gemm.kernel import banded_gemm, bands

    problem, tile = forward_of(candidate.problem), Tile.of(candidate)
    dtype, nbytes = problem.dtype.value, problem.dtype.nbytes
    any_place, packed = (dtype, nbytes), (dtype, 16)
    x, y = ((dtype, spec.alignment) for spec in (problem.x, problem.y))
    pointers = {"x": x, "packed": packed, "bias": any_place, "residual": y, "y": y}
    values: dict[str, object] = {**constants(problem, tile)}
    if candidate.problem.direction is Direction.BACKWARD_DATA:
        for absent in ("bias", "residual"):
            del pointers[absent]
            values[absent] = None
    programs = tile.programs(problem) * problem.k
    products = KernelCall(banded_gemm, pointers, values, programs, tile.warps, tile.stages)
    laid = KernelCall(
        bands, {"w": any_place, "packed": packed}, band_constants(problem, tile), tile.bands(problem) * problem.k,
        _BAND_WARPS, 1,
    )  # fmt: skip
    return products, laid
