"""Products on a staged input: supported problems, staging, tiles, launches."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import prod

from convwright.backends.triton.gemm.algorithms import GROUP_M, Algorithm
from convwright.backends.triton.gemm.tiles import Tile, shapes_first
from convwright.backends.triton.implicit_gemm.offers import (
    blocks,
    output_blocks,
    output_constants,
    sums_bytes,
    tiles_of,
    writing_sums,
)
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
    group_sizes,
    layout_reason,
    offsets_are_wide,
    plane_constants,
    power_of_two,
    shape_reason,
    size_reason,
    weight_depth,
    weight_reason,
    weight_strides,
    window_constants,
)
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

KERNEL = "staged-gemm"
NAME = f"triton/{KERNEL}"
SPLIT, SCALED = split(KERNEL), scaled(KERNEL)
ALGORITHMS = (SPLIT, SCALED)
_BY_NAME = {algorithm.name: algorithm for algorithm in ALGORITHMS}


def algorithm_of(candidate: Candidate) -> Algorithm:
    return _BY_NAME[candidate.algorithm]


_LEAST_OUTPUTS = 8
# In short sums fp32 errs so little that neglecting the product of the low parts would be visible.
_SHORT = 32
# Staged numbers per program, and weights per step of a program that packs.
_STAGED_AT_ONCE, _LEAST_WEIGHTS, _MOST_WEIGHTS = 2048, 128, 4096


def offers(problem: ConvProblem, device: DeviceFacts, policy: Policy) -> Iterator[Offer]:
    """Every configuration worth trying, or the reason why the algorithm does not support the problem."""
    reason = refusal_reason(problem)
    for algorithm in ALGORITHMS:
        if reason is not None:
            yield Refusal(algorithm.id, reason)
            continue
        for tile in best_tiles(problem, algorithm, device, count=algorithm.tiles):
            yield candidate_of(problem, algorithm, tile)


def candidate_of(problem: ConvProblem, algorithm: Algorithm, tile: Tile) -> Candidate:
    workspace_bytes = Staging.of(problem, algorithm, tile).nbytes + sums_bytes(tile, problem)
    return Candidate(
        problem, "triton", algorithm.name, tile.config, algorithm.arithmetic, workspace_bytes, True, Source.RULE,
        tiled=tiles_of(tile, problem) * tile.products(steps(tile, problem)), compiles=True,
    )  # fmt: skip


def cycles_of(candidate: Candidate, device: DeviceFacts) -> float:
    """Estimated cycles of the busiest multiprocessor."""
    return cycles(Tile.of(candidate), candidate.problem, algorithm_of(candidate), device)


def refusal_reason(problem: ConvProblem) -> str | None:
    """Why the kernels cannot compute ``problem``; None if they can."""
    if problem.direction is not Direction.FORWARD:
        return f"computes only the forward direction, got {problem.direction}"
    operands = {"input": problem.x, "output": problem.y}
    return (
        shape_reason(problem, (DType.FP32,), groups=True, volumes=True)
        or channels_reason(problem, _LEAST_OUTPUTS)
        or layout_reason(operands)
        or size_reason(problem, operands)
        or weight_reason(problem)
        or _staged_reason(problem)
    )


def _staged_reason(problem: ConvProblem) -> str | None:
    each = [(algorithm, max(tiles(algorithm), key=lambda tile: tile.bk)) for algorithm in ALGORITHMS]
    staged = max(Staging.of(problem, *one).numbers for one in each)
    if staged >= MOST_ELEMENTS:
        return f"needs a staged input of at most 2^30 numbers, got {staged:,}"
    packed = max(packed_bytes(problem, *one) for one in each)
    return None if packed < MOST_ELEMENTS else f"needs a packed weight of at most 2^30 bytes, got {packed:,}"


# A staged input: pixel by pixel, with its borders, each number as one or two fp16 numbers.


@dataclass(frozen=True, slots=True)
class Staging:
    """``images`` of ``depth`` x ``height`` x ``width`` pixels, all that some tap reads. A pixel has ``pitch`` channels
    in each of its ``groups``, each as one or two numbers, and ``block`` channels share a scale."""

    images: int
    depth: int
    height: int
    width: int
    groups: int
    pitch: int
    block: int
    each: int

    @classmethod
    def of(cls, problem: ConvProblem, algorithm: Algorithm, tile: Tile) -> Staging:
        pitch = padded(group_sizes(problem)[0], tile.bk)
        return cls(problem.n, *extents(problem), problem.groups, pitch, tile.bk, numbers_of(algorithm))

    @property
    def pixels(self) -> int:
        return self.images * self.depth * self.height * self.width

    @property
    def numbers(self) -> int:
        return self.each * self.pixels * self.groups * self.pitch

    @property
    def blocks(self) -> int:
        """Blocks of channels that share a scale."""
        return self.groups * self.pitch // self.block

    @property
    def nbytes(self) -> int:
        """Bytes of the numbers and of the scales after them, aligned for what follows."""
        return aligned(self.numbers * NUMBER_BYTES + self.pixels * self.blocks * SCALE_BYTES)

    @property
    def constants(self) -> dict[str, int]:
        """Compile-time constants of the kernels that write or read it."""
        return {
            "N": self.images, "DP": self.depth, "HP": self.height, "WP": self.width, "G": self.groups,
            "PITCH": self.pitch, "EACH": self.each, "SCALES_AT": self.numbers * NUMBER_BYTES // SCALE_BYTES,
        }  # fmt: skip


def packed_bytes(problem: ConvProblem, algorithm: Algorithm, tile: Tile) -> int:
    """Bytes of a packed weight, with a scale per output channel."""
    row = prod(problem.taps) * padded(problem.w.shape[1], tile.bk)
    return problem.k * (numbers_of(algorithm) * row * NUMBER_BYTES + SCALE_BYTES)


# Configurations and their estimated times.

# With parts a thread holds three tiles of sums, so larger ones spill. Of 64x64, three blocks fit on a multiprocessor
# with two stages, and two with three.
_SPLIT = (
    Tile(128, 128, 64, 8, 3), Tile(128, 64, 64, 8, 2), Tile(128, 64, 64, 8, 3), Tile(64, 128, 64, 4, 3),
    Tile(64, 64, 64, 4, 2), Tile(64, 64, 64, 4, 3), Tile(64, 32, 64, 4, 3), Tile(64, 16, 64, 4, 3),
    Tile(128, 64, 32, 8, 4), Tile(64, 64, 32, 4, 4), Tile(64, 32, 32, 4, 4), Tile(64, 16, 32, 4, 4),
)  # fmt: skip
_SCALED = (
    Tile(128, 128, 128, 8, 3), Tile(128, 128, 64, 8, 4), Tile(128, 128, 64, 8, 3), Tile(256, 64, 64, 8, 4),
    Tile(128, 64, 128, 4, 3), Tile(128, 64, 64, 4, 4), Tile(64, 128, 128, 4, 3), Tile(64, 128, 64, 4, 4),
    Tile(64, 64, 128, 4, 3), Tile(64, 64, 64, 4, 4), Tile(64, 32, 64, 4, 4), Tile(64, 16, 64, 4, 4),
    Tile(128, 64, 32, 4, 4), Tile(64, 64, 32, 4, 4), Tile(64, 32, 32, 4, 4),
)  # fmt: skip
_TILES = {SPLIT: _SPLIT, SCALED: _SCALED}
_FEWEST_STEPS_OF_A_PART = 4
_ROUNDS = (1, 2, 3, 4)  # of blocks; parts also fill the last round
_MOST_SUMS_BYTES = 2**26


def tiles(algorithm: Algorithm) -> tuple[Tile, ...]:
    """All tiles for an algorithm."""
    return _TILES[algorithm]


def shared_bytes(algorithm: Algorithm, tile: Tile) -> int:
    return tile.stages * loaded_bytes(tile.bm, tile.bn, tile.bk, algorithm)


def best_tiles(problem: ConvProblem, algorithm: Algorithm, device: DeviceFacts, *, count: int) -> tuple[Tile, ...]:
    """The ``count`` tiles with the lowest estimates, the best of each shape first; some in parts if multiprocessors
    would be idle."""
    limit = shared_limit(device)

    def taken(tile: Tile) -> float:
        return cycles(tile, problem, algorithm, device)

    whole = [tile for tile in tiles(algorithm) if shared_bytes(algorithm, tile) <= limit]
    partings = [list(_parted(tile, problem, algorithm, device)) for tile in whole]
    parted = [min(each, key=taken) for each in partings if each]
    best = sorted(whole, key=taken)
    ahead = [tile for tile in sorted(parted, key=taken) if taken(tile) < taken(best[0])][: count // 2]
    return shapes_first(sorted([*best[: count - len(ahead)], *ahead], key=taken))


def _parted(tile: Tile, problem: ConvProblem, algorithm: Algorithm, device: DeviceFacts) -> Iterator[Tile]:
    """The tile in each number of parts that fills all multiprocessors."""
    tiles, at_once = tiles_of(tile, problem), together(algorithm, tile, device) * sm_count(device)
    blocks = [rounds * at_once for rounds in _ROUNDS]
    for parts in parts_that_fill(tiles, steps(tile, problem), blocks, fewest_steps=_FEWEST_STEPS_OF_A_PART):
        parted = replace(tile, parts=parts)
        if parts > 1 and sums_bytes(parted, problem) <= _MOST_SUMS_BYTES:
            yield parted


def steps(tile: Tile, problem: ConvProblem) -> int:
    return prod(problem.taps) * padded(group_sizes(problem)[0], tile.bk) // tile.bk


def together(algorithm: Algorithm, tile: Tile, device: DeviceFacts) -> int:
    """The number of blocks that fit on a multiprocessor."""
    sums = (1 + numbers_of(algorithm)) * tile.bm * tile.bn
    return blocks_together(sums, tile.warps, shared_bytes(algorithm, tile), device)


def cycles(tile: Tile, problem: ConvProblem, algorithm: Algorithm, device: DeviceFacts) -> float:
    """A rough time of all kernels, good enough to drop tiles that cannot win."""
    sms, parts = sm_count(device), tile.parts or 1
    each = -(-tiles_of(tile, problem) * parts // sms)
    at_once = min(each, together(algorithm, tile, device))
    step = step_cycles(tile.bm, tile.bn, tile.bk, algorithm, at_once)
    block = -(-steps(tile, problem) // parts) * step + BLOCK_CYCLES / at_once
    written = problem.y.nbytes / (sms * CACHE_BYTES_PER_CYCLE)
    return each * block + written + _staging_cycles(tile, problem, algorithm, sms) + _adding_cycles(tile, problem, sms)


def _staging_cycles(tile: Tile, problem: ConvProblem, algorithm: Algorithm, sms: int) -> float:
    moved = problem.x.nbytes + Staging.of(problem, algorithm, tile).nbytes
    return MORE_KERNEL_CYCLES + moved / (sms * CACHE_BYTES_PER_CYCLE)


def _adding_cycles(tile: Tile, problem: ConvProblem, sms: int) -> float:
    """Of the kernel that adds the parts, and of storing what it reads."""
    if not tile.in_parts:
        return 0
    return MORE_KERNEL_CYCLES + (2 * sums_bytes(tile, problem) + problem.y.nbytes) / (sms * CACHE_BYTES_PER_CYCLE)


# Launches.


def staging_blocks(problem: ConvProblem, algorithm: Algorithm, tile: Tile) -> int:
    """The number of programs that stage the input."""
    staging = Staging.of(problem, algorithm, tile)
    return -(-staging.pixels // _pixels_at_once(tile)) * staging.blocks


def staging_constants(problem: ConvProblem, algorithm: Algorithm, tile: Tile) -> dict[str, int | bool]:
    """Compile-time constants of the kernel that stages the input."""
    values = window_of(problem)
    needed = ("H", "W", "D", "X_N", "X_C", "X_H", "X_W", "X_D", "X_PLANES", "TOP", "LEFT", "FRONT")
    return {name: values[name] for name in needed} | Staging.of(problem, algorithm, tile).constants | {
        "C": group_sizes(problem)[0], "WIDE": offsets_are_wide(problem.x),
        "BP": _pixels_at_once(tile), "BC": tile.bk,
    }  # fmt: skip


def constants(problem: ConvProblem, algorithm: Algorithm, tile: Tile) -> dict[str, int | bool | str]:
    """Compile-time constants of the product kernel."""
    staging = Staging.of(problem, algorithm, tile)
    return product_constants(problem, tile) | staging.constants | {
        "X_PIXEL": staging.each * staging.groups * staging.pitch, "X_LOW": staging.block,
        "FOLDED": 0, "WHOLE": False, "SCALED": True,
    }  # fmt: skip


def product_constants(problem: ConvProblem, tile: Tile) -> dict[str, int | bool | str]:
    """The same, without the constants of staging."""
    values = window_of(problem)
    needed = (
        "R", "S", "T", "Z", "P", "Q", "Y_N", "Y_K", "Y_P", "Y_Q", "Y_Z", "Y_PLANES", "WIDE",
        "STRIDE_D", "STRIDE_H", "STRIDE_W", "DILATION_D", "DILATION_H", "DILATION_W",
    )  # fmt: skip
    return {name: values[name] for name in needed} | {
        "K": group_sizes(problem)[1], "EXACT": problem.dtype is DType.FP32 and problem.reduction <= _SHORT,
        "BIAS": problem.epilogue.bias, "RESIDUAL": problem.epilogue.residual,
        "ACTIVATION": problem.epilogue.activation.value, "BM": tile.bm, "BN": tile.bn, "BK": tile.bk,
        "GROUP_M": GROUP_M, "PARTS": tile.parts or 1,
    }  # fmt: skip


def packing_constants(problem: ConvProblem, algorithm: Algorithm, tile: Tile) -> dict[str, int | bool]:
    """Compile-time constants of the kernel that packs the weight. A program packs one row."""
    values = window_of(problem) | weight_strides(problem) | weight_depth(problem)
    staging = Staging.of(problem, algorithm, tile)
    length = prod(problem.taps) * staging.pitch
    needed = ("R", "S", "T", "W_K", "W_C", "W_T", "W_R", "W_S", "FLIP")
    return {name: values[name] for name in needed} | {
        "ROWS": problem.k, "C": group_sizes(problem)[0], "PITCH": staging.pitch, "EACH": staging.each,
        "BC": tile.bk,
        "BLOCK": min(max(power_of_two(length), _LEAST_WEIGHTS), _MOST_WEIGHTS),
    }  # fmt: skip


def window_of(problem: ConvProblem) -> dict[str, int | bool]:
    """Sizes, strides and window in up to three dimensions, and which operands are NCHW."""
    return window_constants(problem) | depth_constants(problem) | plane_constants(problem)


def _pixels_at_once(tile: Tile) -> int:
    return _STAGED_AT_ONCE // tile.bk


_NUMBERS = ("fp16", 16)  # as a kernel has staged them
_WARPS = 4
_WEIGHTS_OF_A_WARP = 512


def kernel_calls(candidate: Candidate) -> tuple[KernelCall, ...]:
    """The kernels to launch: staging, the products, with several parts their sum, and packing of the weight."""
    from convwright.backends.triton.implicit_gemm.kernel import output_of_parts
    from convwright.backends.triton.staged_gemm.kernel import packed_weight, staged_gemm, staged_input

    problem, algorithm, tile = candidate.problem, algorithm_of(candidate), Tile.of(candidate)
    x, y = ((spec.dtype.value, spec.alignment) for spec in (problem.x, problem.y))
    of_any = problem.dtype.value, problem.dtype.nbytes  # weights and biases, with any address
    packing = packing_constants(problem, algorithm, tile)
    staged = KernelCall(
        staged_input, {"x": x, "staged": _NUMBERS}, staging_constants(problem, algorithm, tile),
        staging_blocks(problem, algorithm, tile), _WARPS, 1,
    )  # fmt: skip
    packed = KernelCall(
        packed_weight, {"w": of_any, "packed": _NUMBERS}, packing, problem.k,
        max(packing["BLOCK"] // _WEIGHTS_OF_A_WARP, 1), 1,
    )  # fmt: skip

    summed, out = (writing_sums(problem), WORKSPACE) if tile.in_parts else (problem, y)
    pointers = {"staged": _NUMBERS, "w": _NUMBERS, "bias": of_any, "residual": y, "y": out}
    values = constants(summed, algorithm, tile)
    products = KernelCall(staged_gemm, pointers, values, blocks(problem, tile), tile.warps, tile.stages, tile.regs)
    if not tile.in_parts:
        return staged, products, packed
    summing = KernelCall(
        output_of_parts, {"sums": WORKSPACE, "bias": of_any, "residual": y, "y": y},
        output_constants(problem, algorithm, tile) | {"scale": None}, output_blocks(problem), _WARPS, 1,
    )  # fmt: skip
    return staged, products, summing, packed
