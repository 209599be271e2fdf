"""Weight gradients on staged operands: supported problems, staging, tiles, launches."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import lru_cache
from math import prod

from convwright.backends.triton.configuration import Configuration
from convwright.backends.triton.gemm.algorithms import Algorithm
from convwright.backends.triton.launching.kernel_call import WORKSPACE, KernelCall
from convwright.backends.triton.multiprocessor import (
    BLOCK_CYCLES,
    CACHE_BYTES_PER_CYCLE,
    MORE_KERNEL_CYCLES,
    parts_that_fill,
    shared_limit,
    sm_count,
)
from convwright.backends.triton.operands import (
    MOST_ELEMENTS,
    depth_constants,
    group_constants,
    group_sizes,
    layout_reason,
    offsets_are_wide,
    pixel_count,
    plane_constants,
    power_of_two,
    shape_reason,
    size_reason,
    weight_depth,
    weight_reason,
    weight_strides,
    window_constants,
)
from convwright.backends.triton.parts.sums import is_summed, promising, sum_call, sum_cycles, sums_bytes
from convwright.backends.triton.staging.fp16_numbers import (
    NUMBER_BYTES,
    SCALE_BYTES,
    aligned,
    blocks_together,
    channels_reason,
    extents,
    loaded_bytes,
    numbers_of,
    padded,
    scaled,
    split,
    step_cycles,
)
from convwright.core.candidate import Candidate, Offer, Refusal, Source
from convwright.core.device import DeviceFacts
from convwright.core.direction import Direction
from convwright.core.dtype import DType
from convwright.core.policy import Policy
from convwright.core.problem import ConvProblem

KERNEL = "staged-weight-gradient"
NAME = f"triton/{KERNEL}"
SPLIT, SCALED = split(KERNEL), scaled(KERNEL)
ALGORITHMS = (SPLIT, SCALED)
_BY_NAME = {algorithm.name: algorithm for algorithm in ALGORITHMS}


def algorithm_of(candidate: Candidate) -> Algorithm:
    return _BY_NAME[candidate.algorithm]


def offers(problem: ConvProblem, device: DeviceFacts, policy: Policy) -> Iterator[Offer]:
    """Every configuration worth trying, or the reason why the algorithm does not support the problem."""
    reason = refusal_reason(problem)
    for algorithm in ALGORITHMS:
        if reason is not None:
            yield Refusal(algorithm.id, reason)
            continue
        for tile in best_configurations(problem, algorithm, device):
            yield candidate_of(problem, algorithm, tile)


def candidate_of(problem: ConvProblem, algorithm: Algorithm, tile: StagedTile) -> Candidate:
    workspace_bytes = staged_bytes(problem, algorithm) + sums_bytes(problem, tile.parts)
    return Candidate(
        problem, "triton", algorithm.name, tile.config, algorithm.arithmetic, workspace_bytes, True, Source.RULE,
        tiled=tile.products(problem), compiles=True,
    )  # fmt: skip


def cycles_of(candidate: Candidate, device: DeviceFacts) -> float:
    """Estimated cycles of the busiest multiprocessor."""
    return cycles(StagedTile.of(candidate), candidate.problem, algorithm_of(candidate), device)


def refusal_reason(problem: ConvProblem) -> str | None:
    """Why the kernels cannot compute ``problem``; None if they can."""
    if problem.direction is not Direction.BACKWARD_WEIGHT:
        return f"computes only weight gradients, got {problem.direction}"
    operands = {"input": problem.x, "gradient": problem.y}
    return (
        shape_reason(problem, (DType.FP32,), groups=True, volumes=True)
        or channels_reason(problem)
        or layout_reason(operands)
        or size_reason(problem, operands)
        or weight_reason(problem)
        or _staged_reason(problem)
    )


def _staged_reason(problem: ConvProblem) -> str | None:
    split, _ = ALGORITHMS
    most = max(each(problem, split).numbers for each in (staged_input, staged_gradient))
    if most >= MOST_ELEMENTS:
        return f"needs staged operands of at most 2^30 numbers, got {most:,}"
    pixels = problem.n * prod(problem.x.shape[2:])
    return None if pixels < MOST_ELEMENTS else f"needs at most 2^30 input pixels, got {pixels:,}"


# The staged input and output gradient, in one workspace.

BLOCK = 64  # of channels
PIXELS_AT_ONCE = 128
_MOST_READ_BEHIND = 256 * 2 * NUMBER_BYTES
# Programs that find the largest numbers, each for some channels in an equal share of the pixels: enough to fill a
# device, and few results to read again.
_SEARCHERS, _MOST_CHUNKS = 512, 128


@dataclass(frozen=True, slots=True)
class OperandLayout:
    """The layout of an operand with ``channels`` channels per group: sizes and strides of images, planes, rows and
    columns; the staged part, ``deep`` by ``high`` by ``wide`` pixels, beginning ``front``, ``top`` and ``left`` pixels
    before the first; whether it is NCHW, and whether it needs 64-bit offsets."""

    channels: int
    n: int
    d: int
    h: int
    w: int
    stride_n: int
    stride_c: int
    stride_d: int
    stride_h: int
    stride_w: int
    deep: int
    high: int
    wide: int
    front: int
    top: int
    left: int
    in_planes: bool
    far: bool


@dataclass(frozen=True, slots=True)
class Staged:
    """One operand as kernels see it: its layout, and its staged ``pixels`` and ``channels``. All pixels of a channel
    share a power of two, so that sums over pixels are possible."""

    layout: OperandLayout
    pixels: int
    channels: int
    each: int
    chunks: int
    begins: int
    # Derived values for kernels. They are fields, since compiled kernels are identified by fields.
    numbers_at: int = field(init=False)  # in numbers from the workspace's start
    scales_at: int = field(init=False)  # in fp32 numbers; after the scales come the largest numbers of each chunk
    searchers: int = field(init=False)  # programs that find the largest numbers, in one chunk of some channels each
    stagers: int = field(init=False)  # programs that stage it
    chunks_at_once: int = field(init=False)  # the number of chunks, rounded up to a power of two

    def __post_init__(self) -> None:
        values = {
            "numbers_at": self.begins // NUMBER_BYTES,
            "scales_at": (self.begins + aligned(self.numbers * NUMBER_BYTES)) // SCALE_BYTES,
            "searchers": self.chunks * self.channels // BLOCK,
            "stagers": -(-self.pixels // PIXELS_AT_ONCE) * self.channels // BLOCK,
            "chunks_at_once": power_of_two(self.chunks),
        }
        for name, value in values.items():
            object.__setattr__(self, name, value)

    @property
    def numbers(self) -> int:
        return self.each * self.pixels * self.channels

    @property
    def ends(self) -> int:
        return aligned((self.scales_at + (1 + self.chunks) * self.channels) * SCALE_BYTES)


@lru_cache(maxsize=256)
def staged_input(problem: ConvProblem, algorithm: Algorithm) -> Staged:
    """The part of the input that some tap reads."""
    sizes = window_constants(problem) | depth_constants(problem) | plane_constants(problem)
    deep, high, wide = extents(problem)
    layout = OperandLayout(
        channels=group_sizes(problem)[0], n=problem.n, d=sizes["D"], h=sizes["H"], w=sizes["W"],
        stride_n=sizes["X_N"], stride_c=sizes["X_C"], stride_d=sizes["X_D"], stride_h=sizes["X_H"],
        stride_w=sizes["X_W"],
        deep=deep, high=high, wide=wide, front=sizes["FRONT"], top=sizes["TOP"], left=sizes["LEFT"],
        in_planes=bool(sizes["X_PLANES"]), far=offsets_are_wide(problem.x),
    )  # fmt: skip
    return _staged(layout, problem.groups, problem.n * deep * high * wide, algorithm, 0)


@lru_cache(maxsize=256)
def staged_gradient(problem: ConvProblem, algorithm: Algorithm) -> Staged:
    """The whole output gradient, after the input, and with zeros after the last pixel."""
    sizes = window_constants(problem) | depth_constants(problem) | plane_constants(problem)
    deep, high, wide = sizes["Z"], sizes["P"], sizes["Q"]
    layout = OperandLayout(
        channels=group_sizes(problem)[1], n=problem.n, d=deep, h=high, w=wide,
        stride_n=sizes["Y_N"], stride_c=sizes["Y_K"], stride_d=sizes["Y_Z"], stride_h=sizes["Y_P"],
        stride_w=sizes["Y_Q"],
        deep=deep, high=high, wide=wide, front=0, top=0, left=0,
        in_planes=bool(sizes["Y_PLANES"]), far=offsets_are_wide(problem.y),
    )  # fmt: skip
    begins = staged_input(problem, algorithm).ends
    return _staged(layout, problem.groups, padded(pixel_count(problem), PIXELS_AT_ONCE), algorithm, begins)


def staged_bytes(problem: ConvProblem, algorithm: Algorithm) -> int:
    """Bytes of both, and of what the widest tile reads after the last channel."""
    return staged_gradient(problem, algorithm).ends + _MOST_READ_BEHIND


def _staged(layout: OperandLayout, groups: int, pixels: int, algorithm: Algorithm, begins: int) -> Staged:
    channels = groups * padded(layout.channels, BLOCK)
    most = min(_MOST_CHUNKS, max(_SEARCHERS * BLOCK // channels, 1))
    blocks = -(-layout.n * layout.d * layout.h * layout.w // PIXELS_AT_ONCE)
    chunks = -(-blocks // -(-blocks // most))  # with the same number of blocks
    return Staged(layout, pixels, channels, numbers_of(algorithm), chunks, begins)


# Configurations and their estimated times.

# Tensor cores truncate what they add to a running sum, at 2^-24 of it for each 16 pixels: with so many pixels this
# error is smaller than rounding numbers to 11 bits.
_MOST_PIXELS_OF_A_PART = 2**15
_BLOCKS_EACH = (1, 2, 3, 4, 5, 6)  # per multiprocessor: the more, the less idle time at the end


@dataclass(frozen=True, slots=True)
class StagedTile(Configuration):
    """The work of one block: ``bm`` input channels of a tap by ``bn`` output channels, ``bk`` pixels per step, over one
    of ``parts`` of all pixels."""

    bm: int
    bn: int
    bk: int
    parts: int
    warps: int
    stages: int

    def tiles(self, problem: ConvProblem) -> int:
        """The number of blocks that compute one part."""
        inputs, outputs = group_sizes(problem)
        return prod(problem.taps) * problem.groups * -(-inputs // self.bm) * -(-outputs // self.bn)

    def steps(self, problem: ConvProblem) -> int:
        """Steps of one part."""
        return -(-pixel_count(problem) // (self.bk * self.parts))

    def products(self, problem: ConvProblem) -> int:
        """Multiplications in all blocks, including idle ones."""
        return self.tiles(problem) * self.parts * self.steps(problem) * self.bm * self.bn * self.bk

    def shared_bytes(self, algorithm: Algorithm) -> int:
        return self.stages * loaded_bytes(self.bm, self.bn, self.bk, algorithm)

    def together(self, algorithm: Algorithm, device: DeviceFacts) -> int:
        """The number of blocks that fit on a multiprocessor."""
        sums = (3 if algorithm is SPLIT else 1) * self.bm * self.bn
        return blocks_together(sums, self.warps, self.shared_bytes(algorithm), device)


def _tile(bm: int, bn: int, bk: int, warps: int, stages: int) -> StagedTile:
    return StagedTile(bm, bn, bk, 1, warps, stages)


_TILES = (
    _tile(128, 128, 64, 8, 3), _tile(128, 64, 64, 8, 2), _tile(128, 64, 64, 8, 3), _tile(64, 128, 64, 4, 3),
    _tile(64, 64, 64, 4, 2), _tile(64, 64, 64, 4, 3), _tile(64, 32, 64, 4, 3), _tile(64, 16, 64, 4, 3),
)  # fmt: skip
_SCALED = (
    _tile(128, 256, 64, 8, 3), _tile(128, 128, 64, 8, 4), _tile(128, 128, 64, 8, 3), _tile(256, 64, 64, 8, 4),
    _tile(128, 64, 64, 4, 4), _tile(64, 128, 64, 4, 4), _tile(64, 64, 64, 4, 4), _tile(64, 32, 64, 4, 4),
    _tile(64, 16, 64, 4, 4),
)  # fmt: skip


def tiles(algorithm: Algorithm) -> tuple[StagedTile, ...]:
    """All tiles for an algorithm, in one part."""
    return _TILES if algorithm is SPLIT else _SCALED


def best_configurations(problem: ConvProblem, algorithm: Algorithm, device: DeviceFacts) -> tuple[StagedTile, ...]:
    """The configurations with the lowest estimates, as many as ``algorithm`` offers, best first."""

    def taken(tile: StagedTile) -> float:
        return cycles(tile, problem, algorithm, device)

    fitting = [
        _parted(tile, problem, algorithm, device)
        for tile in tiles(algorithm)
        if tile.shared_bytes(algorithm) <= shared_limit(device)
    ]
    return tuple(sorted(promising(fitting, taken, algorithm.tiles), key=taken))


def _parted(tile: StagedTile, problem: ConvProblem, algorithm: Algorithm, device: DeviceFacts) -> Iterator[StagedTile]:
    """The tile with each number of parts that fills all multiprocessors."""
    pixels, blocks = pixel_count(problem), [each * sm_count(device) for each in _BLOCKS_EACH]
    least = 1 if algorithm is SPLIT else -(-pixels // _MOST_PIXELS_OF_A_PART)
    for parts in parts_that_fill(tile.tiles(problem), -(-pixels // tile.bk), blocks, least=least):
        yield replace(tile, parts=parts)


def cycles(tile: StagedTile, problem: ConvProblem, algorithm: Algorithm, device: DeviceFacts) -> float:
    """A rough time of all kernels, good enough to drop tiles that cannot win."""
    sms = sm_count(device)
    mine = -(-tile.tiles(problem) * tile.parts // sms)
    at_once = min(mine, tile.together(algorithm, device))
    step = step_cycles(tile.bm, tile.bn, tile.bk, algorithm, at_once)
    busy = mine * (tile.steps(problem) * step + BLOCK_CYCLES / at_once)
    moved = 2 * (problem.x.nbytes + problem.y.nbytes) + staged_bytes(problem, algorithm)
    staging = 2 * MORE_KERNEL_CYCLES + moved / (sms * CACHE_BYTES_PER_CYCLE)
    return busy + staging + sum_cycles(problem, tile.parts, device)


# Launches.


def blocks(problem: ConvProblem, tile: StagedTile) -> int:
    """The number of programs of the product."""
    return tile.tiles(problem) * tile.parts


def constants(problem: ConvProblem, algorithm: Algorithm, tile: StagedTile) -> dict[str, int | bool]:
    """Compile-time constants of the product kernel."""
    x, y = staged_input(problem, algorithm), staged_gradient(problem, algorithm)
    values = window_constants(problem) | depth_constants(problem) | weight_strides(problem) | weight_depth(problem)
    named = (
        "N", "T", "R", "S", "Z", "P", "Q", "W_K", "W_C", "W_T", "W_R", "W_S", "FLIP", "STRIDE_D", "STRIDE_H",
        "STRIDE_W", "DILATION_D", "DILATION_H", "DILATION_W",
    )  # fmt: skip
    return {name: values[name] for name in named} | group_constants(problem) | {
        "DP": x.layout.deep, "HP": x.layout.high, "WP": x.layout.wide,
        "X_PITCH": x.channels, "X_SCALES_AT": x.scales_at,
        "Y_BEGINS": y.numbers_at, "Y_PITCH": y.channels, "Y_SCALES_AT": y.scales_at,
        "EACH": x.each, "BC": BLOCK, "PARTS": tile.parts, "SUMMED": is_summed(problem, tile.parts),
        "BM": tile.bm, "BN": tile.bn, "BK": tile.bk,
    }  # fmt: skip


_NUMBERS = ("fp16", 16)  # as a kernel has staged them
_WARPS = 8


def kernel_calls(candidate: Candidate) -> tuple[KernelCall, ...]:
    """The kernels to launch, in order: finding the largest numbers of both operands, staging both, the product, and
    adding its parts."""
    from convwright.backends.triton.staged_weight_gradient.kernel import (
        largest_of_channels,
        staged_by_channels,
        staged_weight_gradient,
    )

    problem, algorithm, tile = candidate.problem, algorithm_of(candidate), StagedTile.of(candidate)
    x, dy = staged_input(problem, algorithm), staged_gradient(problem, algorithm)
    dtype = problem.dtype.value
    operands = {"x": (dtype, problem.x.alignment), "dy": (dtype, problem.y.alignment), "workspace": _NUMBERS}
    values = {"X": x, "DY": dy, "BP": PIXELS_AT_ONCE, "BC": BLOCK}
    largest = KernelCall(largest_of_channels, operands, values, x.searchers + dy.searchers, _WARPS, 1)
    staged = KernelCall(staged_by_channels, operands, values, x.stagers + dy.stagers, _WARPS, 1)
    summed = is_summed(problem, tile.parts)
    product = KernelCall(
        staged_weight_gradient,
        {"workspace": _NUMBERS, "out": WORKSPACE if summed else (dtype, problem.w.alignment)},
        constants(problem, algorithm, tile), blocks(problem, tile), tile.warps, tile.stages,
    )  # fmt: skip
    return (largest, staged, product, *[sum_call(problem, tile.parts)] * summed)
