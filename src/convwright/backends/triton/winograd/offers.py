"""Winograd's convolution: supported problems, patches, tiles, launches."""

from __future__ import annotations

from collections.abc import Iterator

from convwright.backends.triton.gemm.algorithms import Algorithm, algorithm_of, algorithms_of, arithmetic_constants
from convwright.backends.triton.gemm.tiles import Tile
from convwright.backends.triton.launching.kernel_call import WORKSPACE, KernelCall
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
from convwright.backends.triton.operands import (
    MOST_ELEMENTS,
    is_in_planes,
    layout_reason,
    pixel_count,
    plane_constants,
    power_of_two,
    shape_reason,
    size_reason,
    weight_reason,
    window_constants,
)
from convwright.backends.triton.packing.call import transformed_call
from convwright.core.candidate import Candidate, Offer, Refusal, Source
from convwright.core.device import DeviceFacts
from convwright.core.direction import Direction
from convwright.core.dtype import Arithmetic, DType
from convwright.core.policy import Policy
from convwright.core.problem import ConvProblem

KERNEL = "winograd"
NAME = f"triton/{KERNEL}"

# No plain TF32: rounding after the transforms errs 1.7 times as much as before them, and up to 2.3 times at the worst
# place; and then so little is multiplied that reading takes as long.
ALGORITHMS = tuple(each for each in algorithms_of(KERNEL, DType.FP32) if each.arithmetic is Arithmetic.TF32X3)


_MOST_TILES = 2
# With fewer channels the transforms take as long as the products that they save.
_LEAST_CHANNELS = 16
_MOST_POINTS_BYTES = 2**30
# Times the estimate of an implicit GEMM at its best, most of which it reaches, unless there are few channels.
_HOPELESS = 2.0
# For a program that transforms the input: numbers of a point, and channels of these. Warps are in proportion, so that
# each thread has equally many numbers.
_POINTS, _CHANNELS, _CHANNELS_OF_PLANES = 512, 64, 32
_POINTS_OF_PLANES = 1024
_POINTS_OF_A_WARP = 128


def offers(problem: ConvProblem, device: DeviceFacts, policy: Policy) -> Iterator[Offer]:
    """Every configuration worth trying, or the reason why the algorithm does not support the problem."""
    refused = refusal_reason(problem)
    for algorithm in ALGORITHMS:
        reason = refused or _slow_reason(problem, device, algorithm)
        if reason is not None:
            yield Refusal(algorithm.id, reason)
            continue
        for tile in best_tiles(problem, device, packed=algorithm.packed, count=_MOST_TILES):
            yield candidate_of(problem, algorithm, tile)


def candidate_of(problem: ConvProblem, algorithm: Algorithm, tile: Tile) -> Candidate:
    return Candidate(
        problem, "triton", algorithm.name, tile.config, algorithm.arithmetic, points_bytes(problem), True, Source.RULE,
        saves_products=True, products=products(problem), compiles=True,
    )  # fmt: skip


def cycles_of(candidate: Candidate, device: DeviceFacts) -> float:
    """Estimated cycles of the busiest multiprocessor."""
    packed = algorithm_of(candidate, KERNEL).packed
    return cycles(Tile.of(candidate), candidate.problem, device, packed=packed)


def refusal_reason(problem: ConvProblem) -> str | None:
    """Why the kernels cannot compute ``problem``; None if they can."""
    if problem.direction is not Direction.FORWARD:
        return f"computes only the forward direction, got {problem.direction}"
    operands = {"input": problem.x, "output": problem.y}
    return (
        shape_reason(problem, (DType.FP32,))
        or _window_reason(problem)
        or layout_reason(operands)
        or size_reason(problem, operands)
        or weight_reason(problem)
        or _transformed_reason(problem)
    )


def _window_reason(problem: ConvProblem) -> str | None:
    if problem.rank != 2:
        return f"needs 2 spatial dimensions, got {problem.rank}"
    if problem.taps != (3, 3):
        return f"needs 3x3 taps, got {'x'.join(map(str, problem.taps))}"
    for name, sizes in {"stride": problem.stride, "dilation": problem.dilation}.items():
        if any(size != 1 for size in sizes):
            return f"needs {name} 1, got {sizes}"
    if min(problem.c, problem.k) < _LEAST_CHANNELS:
        return f"needs at least {_LEAST_CHANNELS} input and output channels, got {problem.c} and {problem.k}"
    return None


def _transformed_reason(problem: ConvProblem) -> str | None:
    if points_bytes(problem) > _MOST_POINTS_BYTES:
        return f"needs a transformed input of at most 2^30 bytes, got {points_bytes(problem):,}"
    if prepared_numbers(problem) >= MOST_ELEMENTS:
        return f"needs a transformed weight of at most 2^30 numbers, got {prepared_numbers(problem):,}"
    return None


def _slow_reason(problem: ConvProblem, device: DeviceFacts, algorithm: Algorithm) -> str | None:
    """Why the kernels cannot win although they could compute the problem: products of 16 points, one after another, in
    few tiles."""
    (best,) = best_tiles(problem, device, packed=algorithm.packed, count=1)
    ratio = cycles(best, problem, device, packed=algorithm.packed) / implicit_gemm_cycles(problem, device)
    if ratio <= _HOPELESS:
        return None
    return f"takes about {ratio:.1f} times as long as an implicit GEMM, in {tiles_of(best, problem)} tiles"


# The patches of 2x2 output pixels of Winograd's transforms, and their memory.

POINTS = 16  # of a patch, each with its own product
_CHANNELS_AT_ONCE = 4


def rows_and_columns(problem: ConvProblem) -> tuple[int, int]:
    """Rows and columns of patches in an image. The last may extend beyond it."""
    rows, columns = (-(-size // 2) for size in problem.y.shape[2:])
    return rows, columns


def patch_count(problem: ConvProblem) -> int:
    """Of the whole batch."""
    rows, columns = rows_and_columns(problem)
    return problem.n * rows * columns


def pitch(problem: ConvProblem) -> int:
    """Input channels of a point, padded with zeros."""
    return -(-problem.c // _CHANNELS_AT_ONCE) * _CHANNELS_AT_ONCE


def points_bytes(problem: ConvProblem) -> int:
    """Bytes of the transformed input."""
    return POINTS * patch_count(problem) * pitch(problem) * 4


def prepared_numbers(problem: ConvProblem) -> int:
    """The most numbers of a prepared weight: both parts of the transformed one, and the weight itself."""
    return problem.k * (2 * POINTS * pitch(problem) + 9 * problem.c)


def products(problem: ConvProblem) -> int:
    """Multiplications of the products, with whole patches and without transforms."""
    return POINTS * patch_count(problem) * problem.c * problem.k


# Configurations and their estimated times.

_MOST_OF_A_THREAD = 256  # registers

# A thread holds six tiles of sums, so larger tiles spill. The limit allows a third block per multiprocessor.
TILES = (
    Tile(128, 64, 32, 8, 3), Tile(64, 64, 32, 4, 3), Tile(64, 32, 32, 4, 4, regs=168), Tile(32, 64, 32, 4, 3),
)  # fmt: skip


def tiles_of(tile: Tile, problem: ConvProblem) -> int:
    """The number of blocks that compute the output."""
    return -(-patch_count(problem) // tile.bm) * -(-problem.k // tile.bn)


def best_tiles(problem: ConvProblem, device: DeviceFacts, *, packed: bool, count: int) -> tuple[Tile, ...]:
    """The ``count`` tiles with the lowest estimates, best first."""
    limit = shared_limit(device)
    fitting = [tile for tile in TILES if tile.shared_bytes(4, split=packed) <= limit]
    return tuple(sorted(fitting, key=lambda tile: cycles(tile, problem, device, packed=packed))[:count])


def cycles(tile: Tile, problem: ConvProblem, device: DeviceFacts, *, packed: bool) -> float:
    """A rough time of both kernels, good enough to drop tiles that cannot win."""
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
    """The time of the same arithmetic without transforms, with all multiprocessors busy."""
    products = 9 * pixel_count(problem) * problem.c * problem.k
    return products / (sm_count(device) * products_per_cycle(Arithmetic.TF32X3, 64)) + BLOCK_CYCLES


# Launches.


def transform_blocks(problem: ConvProblem) -> int:
    """The number of programs that transform the input."""
    bt, bc = _transform_tile(problem)
    return -(-patch_count(problem) // bt) * -(-pitch(problem) // bc)


def transform_warps(problem: ConvProblem) -> int:
    bt, bc = _transform_tile(problem)
    return bt * bc // _POINTS_OF_A_WARP


def transform_constants(problem: ConvProblem) -> dict[str, int | bool]:
    """Compile-time constants of the kernel that transforms the input."""
    bt, bc = _transform_tile(problem)
    values = _common_constants(problem)
    needed = ("N", "C", "H", "W", "ROWS", "COLUMNS", "X_N", "X_C", "X_H", "X_W", "X_PLANES", "TOP", "LEFT", "WIDE")
    return {name: values[name] for name in needed} | {"PITCH": pitch(problem), "BT": bt, "BC": bc}


def constants(problem: ConvProblem, algorithm: Algorithm, tile: Tile) -> dict[str, int | bool | str]:
    """Compile-time constants of the product kernel."""
    values = _common_constants(problem) | arithmetic_constants(algorithm, tile)
    needed = (
        "N", "C", "H", "W", "K", "P", "Q", "ROWS", "COLUMNS", "X_N", "X_C", "X_H", "X_W",
        "Y_N", "Y_K", "Y_P", "Y_Q", "Y_PLANES", "TOP", "LEFT", "WIDE", "PACKED", "BM", "BN", "BK", "GROUP_M",
    )  # fmt: skip
    return {name: values[name] for name in needed} | {
        "PITCH": pitch(problem), "BIAS": problem.epilogue.bias, "RESIDUAL": problem.epilogue.residual,
        "ACTIVATION": problem.epilogue.activation.value,
    }  # fmt: skip


def _common_constants(problem: ConvProblem) -> dict[str, int | bool]:
    rows, columns = rows_and_columns(problem)
    return window_constants(problem) | plane_constants(problem) | {"ROWS": rows, "COLUMNS": columns}


def _transform_tile(problem: ConvProblem) -> tuple[int, int]:
    """Patches by channels. For NCHW, more patches, which are read contiguously."""
    planes = is_in_planes(problem.x)
    points, most = (_POINTS_OF_PLANES, _CHANNELS_OF_PLANES) if planes else (_POINTS, _CHANNELS)
    bc = min(most, power_of_two(pitch(problem)))
    return points // bc, bc


def kernel_calls(candidate: Candidate) -> tuple[KernelCall, KernelCall, KernelCall]:
    """The kernels to launch: the input's transform, the products, and the weight's transform."""
    from convwright.backends.triton.winograd.kernel import transformed_input, winograd

    problem, tile = candidate.problem, Tile.of(candidate)
    x, y = ((problem.dtype.value, spec.alignment) for spec in (problem.x, problem.y))
    transform = KernelCall(
        transformed_input, {"x": x, "points": WORKSPACE}, transform_constants(problem), transform_blocks(problem),
        transform_warps(problem), 1,
    )  # fmt: skip
    # The residual has the output's layout, and a prepared weight the layout of ``prepare``. The bias needs few loads,
    # so no alignment is assumed.
    bias = problem.dtype.value, problem.dtype.nbytes
    pointers = {"points": WORKSPACE, "w": WORKSPACE, "x": x, "bias": bias, "residual": y, "y": y}
    algorithm = algorithm_of(candidate, KERNEL)
    values = constants(problem, algorithm, tile)
    products = KernelCall(winograd, pointers, values, tiles_of(tile, problem), tile.warps, tile.stages, tile.regs)
    return transform, products, transformed_call(problem, pitch=pitch(problem), packed=algorithm.packed)
