"""Products on folded rows of taps, for images of few channels: supported problems, staging, tiles, launches."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from math import inf, prod

from convwright.backends.triton.gemm.algorithms import Algorithm
from convwright.backends.triton.gemm.tiles import Tile
from convwright.backends.triton.implicit_gemm.offers import tiles_of
from convwright.backends.triton.launching.kernel_call import KernelCall
from convwright.backends.triton.multiprocessor import (
    BLOCK_CYCLES,
    CACHE_BYTES_PER_CYCLE,
    MORE_KERNEL_CYCLES,
    MOST_WARPS,
    STEP_CYCLES,
    products_per_cycle,
    shared_limit,
    sm_count,
)
from convwright.backends.triton.operands import (
    MOST_ELEMENTS,
    layout_reason,
    offsets_are_wide,
    pair,
    power_of_two,
    shape_reason,
    size_reason,
    weight_depth,
    weight_reason,
    weight_strides,
)
from convwright.backends.triton.staged_gemm.offers import product_constants, shared_bytes, window_of
from convwright.backends.triton.staging.fp16_numbers import (
    NUMBER_BYTES,
    SCALE_BYTES,
    aligned,
    extents,
    numbers_of,
    padded,
    scaled,
    split,
)
from convwright.core.candidate import Candidate, Offer, Refusal, Source
from convwright.core.device import DeviceFacts
from convwright.core.direction import Direction
from convwright.core.dtype import Arithmetic, DType
from convwright.core.policy import Policy
from convwright.core.problem import ConvProblem

KERNEL = "folded-gemm"
NAME = f"triton/{KERNEL}"
_OF_DTYPE = {
    DType.FP16: (Algorithm(KERNEL, Arithmetic.FP16_ACC32),),
    DType.BF16: (Algorithm(KERNEL, Arithmetic.BF16_ACC32),),
    DType.FP32: (split(KERNEL), scaled(KERNEL)),
}
DTYPES = tuple(_OF_DTYPE)


def algorithms_of(dtype: DType) -> tuple[Algorithm, ...]:
    """The algorithms for a storage type; if none supports it, the first, whose name a refusal needs."""
    return _OF_DTYPE.get(dtype, _OF_DTYPE[DType.FP16])


def algorithm_of(candidate: Candidate) -> Algorithm:
    return {each.name: each for each in algorithms_of(candidate.problem.dtype)}[candidate.algorithm]


# With more channels each tap fills a step.
_MOST_CHANNELS, _LEAST_OUTPUTS = 8, 8
_MOST_OF_A_STEP, _MOST_OF_A_ROW = 64, 32_768
_MOST_OF_A_BLOCK = 2**20  # elements of a Triton block


def offers(problem: ConvProblem, device: DeviceFacts, policy: Policy) -> Iterator[Offer]:
    """Every configuration worth trying, or the reason why the algorithm does not support the problem."""
    reason = refusal_reason(problem)
    for algorithm in algorithms_of(problem.dtype):
        if reason is not None:
            yield Refusal(algorithm.id, reason)
            continue
        for tile in best_tiles(problem, algorithm, device, count=algorithm.tiles):
            yield candidate_of(problem, algorithm, tile)


def candidate_of(problem: ConvProblem, algorithm: Algorithm, tile: FoldedTile) -> Candidate:
    return Candidate(
        problem, "triton", algorithm.name, tile.config, algorithm.arithmetic, workspace_bytes(problem, algorithm), True,
        Source.RULE, tiled=tiles_of(tile, problem) * tile.products(steps(problem)), compiles=True,
    )  # fmt: skip


def workspace_bytes(problem: ConvProblem, algorithm: Algorithm) -> int:
    """Bytes of the staged input and of the packed weight after it."""
    folding = Folding.of(problem, algorithm)
    return folding.nbytes + folding.packed_bytes(steps(problem), problem.k)


def cycles_of(candidate: Candidate, device: DeviceFacts) -> float:
    """Estimated cycles of the busiest multiprocessor."""
    return cycles(FoldedTile.of(candidate), candidate.problem, algorithm_of(candidate), device)


def refusal_reason(problem: ConvProblem) -> str | None:
    """Why the kernels cannot compute ``problem``; None if they can."""
    if problem.direction is not Direction.FORWARD:
        return f"computes only the forward direction, got {problem.direction}"
    operands = {"input": problem.x, "output": problem.y}
    return (
        shape_reason(problem, DTYPES, volumes=True)
        or _window_reason(problem)
        or layout_reason({"output": problem.y})
        or size_reason(problem, operands)
        or weight_reason(problem)
        or _folded_reason(problem)
    )


def _window_reason(problem: ConvProblem) -> str | None:
    if problem.c > _MOST_CHANNELS or problem.k < _LEAST_OUTPUTS:
        bounds = f"at most {_MOST_CHANNELS} input and at least {_LEAST_OUTPUTS} output channels"
        return f"needs {bounds}, got {problem.c} and {problem.k}"
    if problem.taps[-1] == 1 or problem.dilation[-1] != 1:
        got = f"{problem.taps[-1]} with dilation {problem.dilation[-1]}"
        return f"needs several adjacent taps in a row, got {got}"
    return None


def _folded_reason(problem: ConvProblem) -> str | None:
    folding = Folding.of(problem, algorithms_of(problem.dtype)[0])
    if folding.step > _MOST_OF_A_STEP:
        most = _MOST_OF_A_STEP // folding.channels
        return f"needs at most {most} taps in a row for {problem.c} channels, got {folding.taps}"
    if folding.width * folding.channels > _MOST_OF_A_ROW:
        return f"needs rows of at most {_MOST_OF_A_ROW // folding.channels:,} pixels, got {folding.width:,}"
    weights = steps(problem) * folding.step
    if power_of_two(weights) > _MOST_OF_A_BLOCK:
        return f"needs at most {_MOST_OF_A_BLOCK:,} packed weights per output channel, got {weights:,}"
    staged = folding.each * folding.numbers
    return None if staged < MOST_ELEMENTS else f"needs a staged input of at most 2^30 numbers, got {staged:,}"


# A staged image of few channels: row by row, with channels padded to a power of two, so that the input of a row of taps
# is contiguous.

_LEAST_CHANNELS = 4  # of a pixel: with fewer, too few bytes are contiguous
_LEAST_STEP = 16  # of tensor cores
_WHOLE_LOADS = 8  # numbers per load instruction; rows are multiples of it


@dataclass(frozen=True, slots=True)
class Folding:
    """``rows`` of ``width`` pixels of ``channels``; ``taps`` adjacent taps form a step of ``step`` numbers.

    ``whole`` steps also read the numbers after the taps, where vector loads would otherwise miss only the end of a
    step. Twice as many loads of half the length kept shared memory busy for 83 % of the 85 µs of a first layer of 7x7
    (H200, under a profiler).
    """

    images: int
    depth: int
    height: int
    width: int
    channels: int
    taps: int
    each: int
    scaled: bool
    whole: bool

    @classmethod
    def of(cls, problem: ConvProblem, algorithm: Algorithm) -> Folding:
        channels = max(power_of_two(problem.c), _LEAST_CHANNELS)
        deep, high, wide = extents(problem)
        taps, axis, scaled = pair(problem.taps, 1)[1], problem.axes[-1], problem.dtype is DType.FP32
        whole = axis.stride * channels % _WHOLE_LOADS == 0 and taps * channels % _WHOLE_LOADS != 0
        if whole:
            wide = max(wide, (axis.out - 1) * axis.stride + _step(taps, channels) // channels)
        wide = padded(wide, max(_WHOLE_LOADS // channels, 1))
        return cls(problem.n, deep, high, wide, channels, taps, numbers_of(algorithm), scaled, whole)

    @property
    def rows(self) -> int:
        return self.images * self.depth * self.height

    @property
    def step(self) -> int:
        return _step(self.taps, self.channels)

    @property
    def numbers(self) -> int:
        """Of one part."""
        return self.rows * self.width * self.channels

    @property
    def nbytes(self) -> int:
        """Bytes of the numbers and of a scale per row after them, aligned for what follows."""
        return aligned(self.each * self.numbers * NUMBER_BYTES + self.rows * SCALE_BYTES * self.scaled)

    @property
    def constants(self) -> dict[str, int | bool]:
        """Compile-time constants of the kernels that write or read it."""
        return {
            "N": self.images, "DP": self.depth, "HP": self.height, "WP": self.width, "PITCH": self.channels,
            "EACH": self.each, "SCALED": self.scaled,
            "SCALES_AT": self.each * self.numbers * NUMBER_BYTES // SCALE_BYTES,
        }  # fmt: skip

    def packed_bytes(self, rows: int, outputs: int) -> int:
        """Bytes of a weight with ``rows`` rows of taps, and a scale per output channel."""
        return outputs * (self.each * rows * self.step * NUMBER_BYTES + SCALE_BYTES)


def _step(taps: int, channels: int) -> int:
    return max(power_of_two(taps * channels), _LEAST_STEP)


# Configurations and their estimated times.

# Pixels, channels, warps and stages. Steps are few, and storing takes longest: many small blocks hide it.
_SHAPES = (
    (128, 64, 4, 3), (128, 64, 8, 3), (64, 64, 4, 3), (128, 32, 4, 3), (256, 32, 8, 3), (256, 64, 8, 3),
    (64, 32, 4, 3), (128, 128, 8, 3), (128, 16, 4, 3), (64, 128, 4, 3),
)  # fmt: skip
_REGISTERS = 128  # of a thread whose numbers need no scales, so that a multiprocessor holds four such blocks
# For programs that keep the weight. With one stage the rows of a tile are read through the L1 cache, in which windows
# of neighbouring pixels overlap; asynchronous copies of 16 bytes bypass it and fetch 6 times as much (H100).
_HELD_SHAPES = (
    (128, 64, 8, 1), (64, 64, 4, 1), (128, 64, 4, 1), (64, 32, 4, 1), (128, 32, 8, 1), (256, 64, 8, 1),
    (128, 64, 8, 3), (64, 64, 4, 2), (64, 64, 4, 3), (64, 32, 4, 3),
)  # fmt: skip
_RESERVED_BYTES = 1024  # of shared memory that each block takes beyond its request
# Rows of taps, all of which are unrolled.
_MOST_HELD = 11
_MOST_SCALED = 1024  # sums of a warp
_HELD_BYTES_PER_CYCLE, _TIMES_PAST_THE_CACHE = 64, 2


@dataclass(frozen=True, slots=True)
class FoldedTile(Tile):
    """``programs`` keep the weight and compute one tile after another; None if each tile has its own program."""

    programs: int | None = None


def tiles(problem: ConvProblem, algorithm: Algorithm, device: DeviceFacts) -> tuple[FoldedTile, ...]:
    """All tiles for an algorithm. A step is one row of taps."""
    folding = Folding.of(problem, algorithm)
    regs = None if folding.scaled else _REGISTERS
    own = [FoldedTile(bm, bn, folding.step, warps, stages, regs) for bm, bn, warps, stages in _SHAPES]
    held = [FoldedTile(bm, bn, folding.step, warps, stages, programs=1) for bm, bn, warps, stages in _HELD_SHAPES]
    # With scaled sums there are also the sums of a step and of its low parts: more than 32 per thread spill.
    most = _MOST_SCALED if folding.scaled else inf
    fitting = [tile for tile in held if steps(problem) <= _MOST_HELD and tile.bm * tile.bn <= most * tile.warps]
    return *own, *(held_by(device, tile, problem, algorithm) for tile in fitting)


def held_by(device: DeviceFacts, tile: FoldedTile, problem: ConvProblem, algorithm: Algorithm) -> FoldedTile:
    """The tile with as many programs as fit on all multiprocessors, the same number for each block of channels."""
    columns = -(-problem.k // tile.bn)
    at_once = sm_count(device) * _together(tile, problem, algorithm, device)
    each = min(max(at_once // columns, 1), tiles_of(tile, problem) // columns)
    return replace(tile, programs=each * columns)


def held_bytes(tile: FoldedTile, problem: ConvProblem, algorithm: Algorithm) -> int:
    """Shared memory for rows of tiles, the weight, the scales of rows, and either a tile to be stored or a step of one
    that is computed again. With one stage the latter reuses the memory of the rows."""
    rows, each = steps(problem), numbers_of(algorithm) * tile.bk * NUMBER_BYTES
    again = max(tile.bm * tile.bn * problem.y.dtype.nbytes, (tile.bm + tile.bn) * each)
    scales = rows * tile.stages * tile.bm * SCALE_BYTES if Folding.of(problem, algorithm).scaled else 0
    held, read = rows * each * tile.bn, rows * each * tile.stages * tile.bm
    return held + scales + (max(read, again) if tile.stages == 1 else read + again)


def _together(tile: FoldedTile, problem: ConvProblem, algorithm: Algorithm, device: DeviceFacts) -> int:
    """The number of programs that keep the weight and fit on a multiprocessor."""
    shared_bytes = held_bytes(tile, problem, algorithm) + _RESERVED_BYTES
    return max(1, min((shared_limit(device) + _RESERVED_BYTES) // shared_bytes, MOST_WARPS // tile.warps))


def steps(problem: ConvProblem) -> int:
    """Rows of taps."""
    return prod(problem.taps) // problem.taps[-1]


def best_tiles(
    problem: ConvProblem, algorithm: Algorithm, device: DeviceFacts, *, count: int
) -> tuple[FoldedTile, ...]:
    """The ``count`` tiles with the lowest estimates, best first. Half of them keep the weight, if some can."""
    limit = shared_limit(device)

    def needed(tile: FoldedTile) -> int:
        return shared_bytes(algorithm, tile) if tile.programs is None else held_bytes(tile, problem, algorithm)

    def best(among: Sequence[FoldedTile], most: int) -> list[FoldedTile]:
        return sorted(among, key=lambda tile: cycles(tile, problem, algorithm, device))[:most]

    fitting = [tile for tile in tiles(problem, algorithm, device) if needed(tile) <= limit]
    held = best([tile for tile in fitting if tile.programs is not None], count // 2)
    own = best([tile for tile in fitting if tile.programs is None], count - len(held))
    return tuple(best([*held, *own], count))


def cycles(tile: FoldedTile, problem: ConvProblem, algorithm: Algorithm, device: DeviceFacts) -> float:
    """A rough time, good enough to drop tiles that cannot win."""
    sms, folding = sm_count(device), Folding.of(problem, algorithm)
    products = tile.bm * tile.bn * tile.bk / products_per_cycle(algorithm.arithmetic, tile.bm)
    written = tile.bm * tile.bn * problem.y.dtype.nbytes / CACHE_BYTES_PER_CYCLE
    staging = (problem.x.nbytes + folding.nbytes) / (sms * CACHE_BYTES_PER_CYCLE) + MORE_KERNEL_CYCLES
    each = -(-tiles_of(tile, problem) // sms)
    if tile.programs is not None:
        loads = tile.bm * tile.bk * NUMBER_BYTES * folding.each / _HELD_BYTES_PER_CYCLE
        loads *= _TIMES_PAST_THE_CACHE if tile.stages > 1 and folding.whole else 1
        return each * (steps(problem) * (products + loads) + written) + BLOCK_CYCLES + staging
    loads = (tile.bm + tile.bn) * tile.bk * NUMBER_BYTES * folding.each / CACHE_BYTES_PER_CYCLE
    together = max(1, 16 // tile.warps)
    block = steps(problem) * (max(products, loads) + STEP_CYCLES / together) + BLOCK_CYCLES / together
    return each * (block + written) + staging


# Launches.


def laying_constants(problem: ConvProblem, algorithm: Algorithm) -> dict[str, int | bool]:
    """Compile-time constants of the kernel that stages the input and packs the weight. A program writes a row of the
    input, or the weight of an output channel."""
    values = window_of(problem) | weight_strides(problem) | weight_depth(problem)
    folding, rows = Folding.of(problem, algorithm), steps(problem)
    needed = (
        "C", "H", "W", "D", "X_N", "X_C", "X_H", "X_W", "X_D", "TOP", "LEFT", "FRONT",
        "R", "S", "W_K", "W_C", "W_T", "W_R", "W_S", "FLIP",
    )  # fmt: skip
    return {name: values[name] for name in needed} | folding.constants | {
        "WIDE": offsets_are_wide(problem.x), "K": problem.k, "ROWS": rows, "STEP": folding.step,
        "X_BLOCK": power_of_two(folding.width * folding.channels), "W_BLOCK": power_of_two(rows * folding.step),
    }  # fmt: skip


def constants(problem: ConvProblem, algorithm: Algorithm, tile: FoldedTile) -> dict[str, int | bool | str]:
    """Compile-time constants of the product kernel: as for any staged input, with the taps of a row as one."""
    folding = Folding.of(problem, algorithm)
    return product_constants(problem, tile) | folding.constants | {
        "S": 1, "G": 1, "X_PIXEL": folding.channels, "X_LOW": folding.numbers,
        "FOLDED": folding.taps * folding.channels, "WHOLE": folding.whole and not folding.scaled,
    }  # fmt: skip


def held_constants(problem: ConvProblem, algorithm: Algorithm, tile: FoldedTile) -> dict[str, int | bool | str]:
    """The same for the kernel that keeps the weight."""
    values, folding = constants(problem, algorithm, tile), Folding.of(problem, algorithm)
    unknown = ("S", "G", "DILATION_W", "X_PIXEL", "GROUP_M", "PARTS")
    assert tile.programs is not None
    return {name: value for name, value in values.items() if name not in unknown} | {
        "WHOLE": folding.whole, "PROGRAMS": tile.programs, "STAGES": tile.stages,
    }  # fmt: skip


_NUMBERS_OF_A_WARP = 256


def kernel_calls(candidate: Candidate) -> tuple[KernelCall, KernelCall]:
    """The kernels to launch: the one that stages and packs, and the products."""
    from convwright.backends.triton.folded_gemm.kernel import folded_operands, held_gemm
    from convwright.backends.triton.staged_gemm.kernel import staged_gemm

    problem, algorithm, tile = candidate.problem, algorithm_of(candidate), FoldedTile.of(candidate)
    x, y = ((spec.dtype.value, spec.alignment) for spec in (problem.x, problem.y))
    of_any = problem.dtype.value, problem.dtype.nbytes  # weights and biases, with any address
    numbers = (DType.FP16 if problem.dtype is DType.FP32 else problem.dtype).value, 16  # as a kernel has staged them
    values = laying_constants(problem, algorithm)
    warps = _warps(max(values["X_BLOCK"], values["W_BLOCK"]))
    laid = KernelCall(
        folded_operands, {"x": x, "staged": numbers, "w": of_any, "packed": numbers}, values,
        Folding.of(problem, algorithm).rows + problem.k, warps, 1,
    )  # fmt: skip
    pointers = {"staged": numbers, "w": numbers, "bias": of_any, "residual": y, "y": y}
    if tile.programs is None:
        product, blocks = constants(problem, algorithm, tile), tiles_of(tile, problem)
        products = KernelCall(staged_gemm, pointers, product, blocks, tile.warps, tile.stages, tile.regs)
    else:  # whose single long loop has the stages
        product = held_constants(problem, algorithm, tile)
        products = KernelCall(held_gemm, pointers, product, tile.programs, tile.warps, 1, tile.regs)
    return laid, products


def _warps(numbers: int) -> int:
    """Warps of a program that writes so many numbers."""
    return min(max(numbers // _NUMBERS_OF_A_WARP, 1), 16)
