"""Weight gradients as an implicit GEMM: supported problems, tiles, launches."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import prod

from convwright.backends.triton.configuration import Configuration
from convwright.backends.triton.launching.kernel_call import WORKSPACE, KernelCall
from convwright.backends.triton.multiprocessor import (
    BLOCK_CYCLES,
    CACHE_BYTES_PER_CYCLE,
    MORE_KERNEL_CYCLES,
    MOST_WARPS,
    REGISTERS,
    SHARED_BYTES_PER_CYCLE,
    STEP_CYCLES,
    parts_that_fill,
    products_per_cycle,
    shared_limit,
    sm_count,
)
from convwright.backends.triton.operands import (
    MOST_ELEMENTS,
    depth_constants,
    group_constants,
    group_reason,
    group_sizes,
    operand_reason,
    pixel_count,
    shape_reason,
    weight_depth,
    weight_reason,
    weight_strides,
    window_constants,
)
from convwright.backends.triton.parts.sums import (
    BLOCKS_EACH,
    MOST_PIXELS_OF_A_PART,
    SUM_BYTES,
    is_summed,
    promising,
    sum_call,
    sum_cycles,
    sums_bytes,
)
from convwright.core.candidate import Candidate, Offer, Refusal, Source
from convwright.core.device import DeviceFacts
from convwright.core.direction import Direction
from convwright.core.dtype import Arithmetic, DType
from convwright.core.policy import Policy
from convwright.core.problem import ConvProblem

MOST_CONFIGURATIONS = 8
_PITCH = 64  # rows of a packed gradient begin at multiples of this many numbers


@dataclass(frozen=True, slots=True)
class Algorithm:
    """One arithmetic of the kernel. ``packed``: a kernel before it transposes and splits dy."""

    name: str
    arithmetic: Arithmetic
    packed: bool = False
    configurations: int = MOST_CONFIGURATIONS

    @property
    def id(self) -> str:
        return f"triton/{self.name}"

    @property
    def split(self) -> bool:
        """Whether each number is multiplied as two."""
        return self.arithmetic is Arithmetic.TF32X3

    @property
    def turned(self) -> bool:
        """Whether dy goes through registers into tensor cores, which take fp32 only along the sum."""
        return self.arithmetic in (Arithmetic.TF32, Arithmetic.TF32X3) and not self.packed


_OF_DTYPE = {
    DType.FP16: (Algorithm("weight-gradient", Arithmetic.FP16_ACC32),),
    DType.BF16: (Algorithm("weight-gradient", Arithmetic.BF16_ACC32),),
    DType.FP32: (
        Algorithm("weight-gradient-3xtf32", Arithmetic.TF32X3, configurations=MOST_CONFIGURATIONS // 2),
        Algorithm(
            "weight-gradient-3xtf32-packed", Arithmetic.TF32X3, packed=True, configurations=MOST_CONFIGURATIONS // 2
        ),
        Algorithm("weight-gradient-tf32", Arithmetic.TF32),
    ),
}
DTYPES = tuple(_OF_DTYPE)


def algorithms(dtype: DType) -> tuple[Algorithm, ...]:
    """The algorithms for a storage type; if none supports it, the first, whose name a refusal needs."""
    return _OF_DTYPE.get(dtype, _OF_DTYPE[DType.FP16])


def algorithm_named(name: str, dtype: DType) -> Algorithm:
    return {algorithm.name: algorithm for algorithm in algorithms(dtype)}[name]


def pitch(problem: ConvProblem) -> int:
    """Pixels from one channel of a packed gradient to the next."""
    return -(-pixel_count(problem) // _PITCH) * _PITCH


def packed_bytes(problem: ConvProblem, algorithm: Algorithm) -> int:
    """Bytes of both parts of a packed gradient, at the workspace's start."""
    return 2 * problem.k * pitch(problem) * SUM_BYTES if algorithm.packed else 0


NAME = "triton/weight-gradient"
_PACK_TILE = {"PIXELS": 64, "CHANNELS": 32}


def offers(problem: ConvProblem, device: DeviceFacts, policy: Policy) -> Iterator[Offer]:
    """Every configuration worth trying, or the reason why the algorithm does not support the problem."""
    for algorithm in algorithms(problem.dtype):
        reason = refusal_reason(problem, algorithm)
        if reason is not None:
            yield Refusal(algorithm.id, reason)
            continue
        for tile in best_configurations(problem, algorithm, device):
            yield candidate_of(problem, algorithm, tile)


def candidate_of(problem: ConvProblem, algorithm: Algorithm, tile: PartedTile) -> Candidate:
    sums = 0 if tile.scattered else sums_bytes(problem, tile.parts)
    workspace_bytes = packed_bytes(problem, algorithm) + sums
    return Candidate(
        problem, "triton", algorithm.name, tile.config, algorithm.arithmetic, workspace_bytes, True, Source.RULE,
        tiled=tile.products(problem), compiles=True,
    )  # fmt: skip


def cycles_of(candidate: Candidate, device: DeviceFacts) -> float:
    """Estimated cycles of the busiest multiprocessor."""
    problem = candidate.problem
    return cycles(PartedTile.of(candidate), problem, algorithm_named(candidate.algorithm, problem.dtype), device)


def refusal_reason(problem: ConvProblem, algorithm: Algorithm) -> str | None:
    """Why the kernel cannot compute ``problem``; None if it can."""
    if problem.direction is not Direction.BACKWARD_WEIGHT:
        return f"computes only weight gradients, got {problem.direction}"
    operands = {"input": problem.x, "gradient": problem.y}
    reason = shape_reason(problem, DTYPES, groups=True, volumes=True) or group_reason(problem)
    return reason or operand_reason(problem, operands) or _size_reason(problem, algorithm)


def _size_reason(problem: ConvProblem, algorithm: Algorithm) -> str | None:
    packed = packed_bytes(problem, algorithm) // SUM_BYTES
    if packed >= MOST_ELEMENTS:
        return f"needs a packed gradient of at most 2^30 numbers, got {packed:,}"
    return weight_reason(problem)


# Configurations and their estimated times.

_SCATTERED_CYCLES = 2.7  # per number stored to its own cache line (H100)
_MOST_REGISTERS, _SPILLED_AHEAD = 255, 32  # of a thread
_OTHER_REGISTERS, _REGISTERS_OF_A_LOAD = 48, 6  # of a thread, for addresses and masks


@dataclass(frozen=True, slots=True)
class PartedTile(Configuration):
    """The work of one block: ``bm`` taps and input channels by ``bn`` output channels, ``bk`` pixels per step, over one
    of ``parts`` of all pixels.

    ``regs`` limits the registers of a thread, so that one more block fits on a multiprocessor. ``scattered`` is 1 if a
    single part stores its sums directly, each to its own cache line, without a workspace.
    """

    bm: int
    bn: int
    bk: int
    parts: int
    warps: int
    stages: int
    regs: int | None = None
    scattered: int | None = None

    def summed(self, problem: ConvProblem) -> bool:
        """Whether another kernel stores the sums in the gradient."""
        return not self.scattered and is_summed(problem, self.parts)

    def runs_across_taps(self, channels: int, taps: int) -> bool:
        """Whether a tile may span several taps. That costs index arithmetic and saves idle products."""
        padded = -(-channels // self.bm) * self.bm
        return taps > 1 and padded >= 1.3 * channels

    def tiles(self, problem: ConvProblem) -> int:
        """The number of blocks that compute one part."""
        (channels, outputs), taps = group_sizes(problem), prod(problem.taps)
        if self.runs_across_taps(channels, taps):
            rows = -(-channels * taps // self.bm)
        else:
            rows = -(-channels // self.bm) * taps
        return rows * -(-outputs // self.bn) * problem.groups

    def steps(self, pixels: int) -> int:
        """Steps of one part."""
        return -(-pixels // (self.bk * self.parts))

    def products(self, problem: ConvProblem) -> int:
        """Multiplications in all blocks, including idle ones."""
        steps = self.parts * self.steps(pixel_count(problem))
        return self.tiles(problem) * self.bm * self.bn * self.bk * steps

    def group(self, algorithm: Algorithm) -> int:
        """The number of neighbours in a row of dy that a few threads load together; 0 if a whole warp may load one row,
        since it is not transposed in registers."""
        return min(16, self.bn) if algorithm.turned and self.bm >= 64 else 0

    def loaded(self, algorithm: Algorithm, nbytes: int) -> int:
        """Bytes of one step."""
        return (self.bm + self.bn * (1 + algorithm.packed)) * self.bk * nbytes

    def shared_bytes(self, algorithm: Algorithm, nbytes: int) -> int:
        """An upper bound."""
        if not algorithm.turned:
            return self.stages * self.loaded(algorithm, nbytes)
        turned = self.bn * self.bk * nbytes * (1 + algorithm.split)
        return max((self.stages - 1) * self.loaded(algorithm, nbytes) + turned, self.bm * self.bn * 4)

    def registers(self, problem: ConvProblem, algorithm: Algorithm) -> int:
        """Approximate registers of a thread: sums, with 3xTF32 also the sums of one step, and the parts of a tile's
        rows; if their addresses are not multiples of 16 bytes, also registers for loading numbers one by one."""
        inputs, outputs = group_sizes(problem)
        alone = self.bm * (inputs % 4 > 0) + self.bn * (outputs % 4 > 0 and not algorithm.packed)
        held = self.bm * self.bn
        if algorithm.split:
            held += self.bm * self.bn + self.bm * self.bk * 2 + alone * self.bk * _REGISTERS_OF_A_LOAD
        return held // (32 * self.warps) + _OTHER_REGISTERS

    def spills(self, problem: ConvProblem, algorithm: Algorithm) -> bool:
        """Whether it would spill inside its loop. If it hardly exceeds a limit, it spills only before the loop."""
        limit = _MOST_REGISTERS if self.regs is None else self.regs + _SPILLED_AHEAD
        return self.registers(problem, algorithm) > limit


def _tile(bm: int, bn: int, bk: int, warps: int, stages: int, regs: int | None = None) -> PartedTile:
    return PartedTile(bm, bn, bk, 1, warps, stages, regs)


_HALF = (
    _tile(128, 256, 64, 8, 3), _tile(256, 128, 64, 8, 3), _tile(256, 64, 64, 8, 4),
    _tile(128, 128, 64, 8, 3), _tile(128, 128, 32, 8, 4), _tile(128, 64, 64, 4, 4), _tile(128, 32, 64, 4, 4),
    _tile(64, 128, 64, 4, 4), _tile(64, 64, 64, 4, 4), _tile(64, 64, 32, 4, 4), _tile(64, 32, 64, 4, 4),
    _tile(64, 16, 64, 4, 4), _tile(32, 64, 64, 4, 4), _tile(16, 64, 64, 4, 4),
)  # fmt: skip
_TF32 = (
    _tile(128, 128, 32, 8, 3), _tile(128, 128, 32, 8, 4), _tile(128, 64, 32, 4, 4), _tile(128, 64, 32, 8, 4),
    _tile(128, 32, 32, 4, 4), _tile(64, 128, 32, 4, 4), _tile(64, 64, 32, 4, 4), _tile(64, 32, 32, 4, 4),
    _tile(64, 16, 32, 4, 4), _tile(32, 64, 32, 4, 4), _tile(16, 64, 32, 4, 4),
)  # fmt: skip
# Half of the registers hold the sum of the step, so larger tiles spill.
_TF32X3 = (
    _tile(128, 128, 32, 8, 3), _tile(128, 128, 16, 8, 4), _tile(128, 64, 32, 8, 3, 128),
    _tile(128, 32, 32, 4, 3), _tile(64, 128, 32, 4, 3), _tile(64, 64, 32, 4, 3), _tile(64, 64, 16, 4, 4),
    _tile(64, 32, 32, 4, 3), _tile(64, 16, 32, 4, 3), _tile(32, 64, 32, 4, 3), _tile(16, 64, 32, 4, 3),
)  # fmt: skip
_OF_ARITHMETIC = {
    Arithmetic.FP16_ACC32: _HALF,
    Arithmetic.BF16_ACC32: _HALF,
    Arithmetic.TF32: _TF32,
    Arithmetic.TF32X3: _TF32X3,
}


def tiles(algorithm: Algorithm) -> tuple[PartedTile, ...]:
    """All tiles for an algorithm, in one part."""
    known = _OF_ARITHMETIC[algorithm.arithmetic]
    # With packed gradients addresses take the registers that splitting would: with fewer, a hundred accesses spill.
    return tuple(replace(tile, regs=None) for tile in known) if algorithm.packed else known


def best_configurations(problem: ConvProblem, algorithm: Algorithm, device: DeviceFacts) -> tuple[PartedTile, ...]:
    """The configurations with the lowest estimates, as many as ``algorithm`` offers, best first."""
    limit, nbytes = shared_limit(device), problem.dtype.nbytes

    def taken(tile: PartedTile) -> float:
        return cycles(tile, problem, algorithm, device)

    fitting = [
        _parted(tile, problem, device)
        for tile in tiles(algorithm)
        if tile.shared_bytes(algorithm, nbytes) <= limit and not tile.spills(problem, algorithm)
    ]
    chosen = promising(fitting, taken, algorithm.configurations)
    # Some without a workspace, for policies that allow none.
    alone = None if algorithm.packed else next((tile for tile in chosen if tile.parts == 1), None)
    if alone is not None and alone.summed(problem):
        chosen = [*chosen[: algorithm.configurations - 1], replace(alone, scattered=1)]
    return tuple(sorted(chosen, key=taken))


def _parted(tile: PartedTile, problem: ConvProblem, device: DeviceFacts) -> Iterator[PartedTile]:
    """The tile with each number of parts that fills all multiprocessors."""
    pixels, blocks = pixel_count(problem), [each * sm_count(device) for each in BLOCKS_EACH]
    least = -(-pixels // MOST_PIXELS_OF_A_PART)
    for parts in parts_that_fill(tile.tiles(problem), -(-pixels // tile.bk), blocks, least=least):
        yield replace(tile, parts=parts)


def cycles(tile: PartedTile, problem: ConvProblem, algorithm: Algorithm, device: DeviceFacts) -> float:
    """A rough time on the busiest multiprocessor, good enough to drop configurations that cannot win."""
    pixels, sms = pixel_count(problem), sm_count(device)
    mine = -(-tile.tiles(problem) * tile.parts // sms)
    together = min(mine, _blocks_together(tile, problem, algorithm, device))
    step = _step_cycles(tile, algorithm, problem.dtype.nbytes) + STEP_CYCLES / together
    busy = mine * (tile.steps(pixels) * step + BLOCK_CYCLES / together)
    if tile.scattered:
        busy += problem.w.numel * _SCATTERED_CYCLES / sms
    else:
        busy += sum_cycles(problem, tile.parts, device)
    if algorithm.packed:
        moved = 3 * pixels * problem.k * problem.dtype.nbytes
        busy += MORE_KERNEL_CYCLES + moved / (sms * CACHE_BYTES_PER_CYCLE)
    return busy


def _step_cycles(tile: PartedTile, algorithm: Algorithm, nbytes: int) -> float:
    products = tile.bm * tile.bn * tile.bk / products_per_cycle(algorithm.arithmetic, tile.bm)
    loaded = tile.loaded(algorithm, nbytes)
    shared = loaded
    if nbytes == 4:  # rows are loaded to registers, and transposed ones stored back, once for each part
        shared += tile.bm * tile.bk * nbytes
        shared += tile.bn * tile.bk * nbytes * (2 + algorithm.split) * algorithm.turned
    # Tensor cores read their right operand at half the rate of shared memory.
    return max(products, loaded / CACHE_BYTES_PER_CYCLE, shared / SHARED_BYTES_PER_CYCLE + products / 2)


def _blocks_together(tile: PartedTile, problem: ConvProblem, algorithm: Algorithm, device: DeviceFacts) -> int:
    """The number of blocks that fit on a multiprocessor."""
    by_shared = shared_limit(device) // tile.shared_bytes(algorithm, problem.dtype.nbytes)
    registers = min(tile.regs or _MOST_REGISTERS, tile.registers(problem, algorithm))
    return max(1, min(by_shared, REGISTERS // (32 * tile.warps * registers), MOST_WARPS // tile.warps))


# Launches.


def blocks(problem: ConvProblem, tile: PartedTile) -> int:
    """The number of programs of the product."""
    return tile.tiles(problem) * tile.parts


def constants(problem: ConvProblem, algorithm: Algorithm, tile: PartedTile) -> dict[str, int | bool]:
    """Compile-time constants of the product kernel."""
    window = window_constants(problem) | depth_constants(problem) | group_constants(problem)
    return window | weight_strides(problem) | weight_depth(problem) | {
        "SPLIT": algorithm.split, "PITCH": pitch(problem) if algorithm.packed else 0,
        "FLAT": tile.runs_across_taps(problem.w.shape[1], prod(problem.taps)),
        "PARTS": tile.parts, "SUMMED": tile.summed(problem),
        "BM": tile.bm, "BN": tile.bn, "BK": tile.bk, "GROUP": tile.group(algorithm),
    }  # fmt: skip


def pack_blocks(problem: ConvProblem) -> int:
    return pitch(problem) // _PACK_TILE["PIXELS"] * -(-problem.k // _PACK_TILE["CHANNELS"])


def pack_constants(problem: ConvProblem) -> dict[str, int | bool]:
    """Compile-time constants of the kernel that packs dy."""
    needed = ("N", "K", "Z", "P", "Q", "Y_N", "Y_Z", "Y_P", "Y_Q", "WIDE")
    window = window_constants(problem) | depth_constants(problem)
    return {name: window[name] for name in needed} | {"PITCH": pitch(problem)} | _PACK_TILE


def kernel_calls(candidate: Candidate) -> tuple[KernelCall, ...]:
    """The kernels to launch, in order: packing of dy, if it is packed; the product; the addition of its parts."""
    from convwright.backends.triton.weight_gradient.kernel import packed_gradient, weight_gradient

    problem, tile = candidate.problem, PartedTile.of(candidate)
    summed = tile.summed(problem)
    algorithm = algorithm_named(candidate.algorithm, problem.dtype)
    x, dy, dw = ((problem.dtype.value, spec.alignment) for spec in (problem.x, problem.y, problem.w))
    pointers = {"x": x, "dy": WORKSPACE if algorithm.packed else dy, "out": WORKSPACE if summed else dw}
    values = constants(problem, algorithm, tile)
    product = KernelCall(weight_gradient, pointers, values, blocks(problem, tile), tile.warps, tile.stages, tile.regs)
    pack = KernelCall(
        packed_gradient, {"dy": dy, "packed": WORKSPACE}, pack_constants(problem), pack_blocks(problem), 4, 1
    )
    return (*[pack] * algorithm.packed, product, *[sum_call(problem, tile.parts)] * summed)
