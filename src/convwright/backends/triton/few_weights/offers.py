"""Weight gradients with few weights per input channel, by direct sums: supported problems, patches, launches."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import product
from math import gcd, prod

from convwright.backends.triton.configuration import Configuration
from convwright.backends.triton.launching.kernel_call import WORKSPACE, KernelCall
from convwright.backends.triton.multiprocessor import CACHE_BYTES_PER_CYCLE, REGISTERS, sm_count
from convwright.backends.triton.operands import (
    channel_constants,
    depth,
    depth_constants,
    group_constants,
    group_sizes,
    pair,
    power_of_two,
    shape_reason,
    size_reason,
    weight_depth,
    weight_reason,
    weight_strides,
    window_constants,
)
from convwright.backends.triton.parts.sums import sum_call, sum_cycles, sums_bytes
from convwright.core.candidate import Candidate, Offer, Refusal, Source
from convwright.core.device import DeviceFacts
from convwright.core.direction import Direction
from convwright.core.dtype import DType, native_arithmetic
from convwright.core.fusing import has_extended_epilogue
from convwright.core.policy import Policy
from convwright.core.problem import ConvProblem
from convwright.core.tensor_spec import TensorSpec

ALGORITHM = "few-weights"
NAME = f"triton/{ALGORITHM}"
_DTYPES = (DType.FP16, DType.BF16, DType.FP32)
_MOST_OUTPUTS = 16
# A thread keeps a sum for each tap of a block.
_MOST_WEIGHTS = 400


def offers(problem: ConvProblem, device: DeviceFacts, policy: Policy) -> Iterator[Offer]:
    """Every configuration worth trying, or the reason why the algorithm does not support the problem."""
    reason = refusal_reason(problem)
    if reason is not None:
        yield Refusal(NAME, reason)
        return
    for patch in best_patches(problem, device):
        yield candidate_of(problem, patch)


def candidate_of(problem: ConvProblem, patch: Patch) -> Candidate:
    workspace_bytes = sums_bytes(problem, patch.parts) if patch.parts > 1 else 0
    arithmetic = native_arithmetic(problem.dtype, tf32=False)
    return Candidate(
        problem, "triton", ALGORITHM, patch.config, arithmetic, workspace_bytes, True, Source.RULE, compiles=True
    )


def cycles_of(candidate: Candidate, device: DeviceFacts) -> float:
    """Estimated cycles of the busiest multiprocessor."""
    return cycles(Patch.of(candidate), candidate.problem, device)


def refusal_reason(problem: ConvProblem) -> str | None:
    """Why the kernel cannot compute ``problem``; None if it can."""
    if problem.direction is not Direction.BACKWARD_WEIGHT:
        return f"computes only weight gradients, got {problem.direction}"
    reason = shape_reason(problem, _DTYPES, groups=True, volumes=True, ahead=True)
    return reason or _few_reason(problem) or size_reason(problem, {"input": problem.x, "gradient": problem.y})


def _few_reason(problem: ConvProblem) -> str | None:
    (_, outputs), taps = group_sizes(problem), prod(tap_block(problem))
    if outputs > _MOST_OUTPUTS:
        return f"needs at most {_MOST_OUTPUTS} output channels per group, got {outputs}"
    if taps * outputs > _MOST_WEIGHTS:
        return f"needs at most {_MOST_WEIGHTS} weights per plane of an input channel, got {taps * outputs}"
    return weight_reason(problem)


# Configurations and their estimated times.

MOST_PATCHES = 8
_MOST_ALIKE = 2  # in columns, taps and lanes of a thread
_WARP = 32
# Registers of a thread: for sums, and in total.
_MOST_SUMS, _MOST_REGISTERS = 128, 216
_OTHER_REGISTERS = 40
_MOST_TAPS_UNDIVIDED, _MOST_TAPS_OF_A_BLOCK = 121, 64  # in a plane
_LEAST_TAPS_HALVED = 25
# For each memory access the compiler walks all unrolled instructions, and once more for each of these steps.
_MOST_WALKED, _STEPS_OF_A_READ, _STEPS_OF_A_SUM = 2.5e8, 5, 2
# Of a multiprocessor, if lanes of several warps add their sums in shared memory.
_MOST_WARPS, _SHARED_BYTES, _MOST_SHARED_BYTES = 64, 200_000, 49_152
_MOST_INPUTS = 4
_MOST_PATCHES_COUNTED = 2**31  # many with far dilations: a kernel numbers all patches
_SCHEDULERS = 4  # of a multiprocessor, each of which issues one instruction per cycle
_LINE_BYTES = 128  # that the L1 cache gives per cycle
_PATCH_INSTRUCTIONS = 40  # to compute the patch's offsets
# The memory latency of a step with few warps; a block's start, and its end per sum.
_WAITING_CYCLES, _BLOCK_CYCLES, _CYCLES_OF_A_SUM = 1600, 1000, 12
# Storing the sums of parts, most of which are scattered, takes so many times the cache's time for as many bytes.
_LAYING = 14
# Warps to have on each multiprocessor: fewer wait for memory, more have more parts to add.
_WARPS_EACH = (8, 16, 32, 48)


@dataclass(frozen=True, slots=True)
class Patch(Configuration):
    """The patches that a thread takes at a time, and the block: ``rows`` by ``columns`` pixels, for ``outputs``
    channels of a group's gradient and ``inputs`` input channels.

    Of its ``lanes``, ``channels`` are adjacent in the channels of a pixel; the others in the patches of an image. The
    patches of all images are divided into ``parts``. A thread keeps the sums of ``taps_h`` rows and ``taps_w`` columns
    of a plane of taps, by default those of `tap_block`.
    """

    rows: int
    columns: int
    channels: int
    lanes: int
    warps: int
    outputs: int = 1
    inputs: int = 1
    parts: int = 1
    taps_h: int | None = None
    taps_w: int | None = None

    @property
    def together(self) -> int:
        """The number of patches that a block takes at a time."""
        return self.lanes // self.channels

    @property
    def across(self) -> int:
        """The number of warps that exchange the sums of a channel, if warps have several channels each."""
        return min(self.warps, self.together) if self.channels > 1 else 1

    @property
    def each(self) -> int:
        """Lanes per thread."""
        return self.lanes // (_WARP * self.warps)

    def taps(self, problem: ConvProblem) -> tuple[int, int]:
        """Rows and columns of the taps whose sums a thread keeps."""
        rows, columns = tap_block(problem)
        return self.taps_h or rows, self.taps_w or columns

    def tap_blocks(self, problem: ConvProblem) -> int:
        """The number of blocks of a plane's taps."""
        return prod(-(-size // taken) for size, taken in zip(pair(problem.taps, 1), self.taps(problem), strict=True))

    def sums(self, problem: ConvProblem) -> int:
        """Of one lane."""
        return prod(self.taps(problem)) * self.outputs * self.inputs

    def shared_bytes(self, problem: ConvProblem) -> int:
        """An upper bound for adding the sums of several lanes."""
        padded = power_of_two(self.sums(problem))
        return 4 * max(self.warps * self.channels, _WARP) * padded if self.together > 1 else 0

    def blocks_of_a_part(self, problem: ConvProblem) -> int:
        _, outputs = group_sizes(problem)
        blocks = depth(problem.taps, 1) * self.tap_blocks(problem)
        return -(-problem.c // (self.channels * self.inputs)) * (outputs // self.outputs) * blocks

    def patches(self, problem: ConvProblem) -> int:
        """Of all images."""
        (gap_h, _), (gap_w, _) = spacings(problem, self)
        P, Q = pair(problem.y.shape[2:], 1)
        images = problem.n * depth(problem.y.shape[2:], 1)
        return images * -(-P // (self.rows * gap_h)) * gap_h * -(-Q // (self.columns * gap_w)) * gap_w

    def steps(self, problem: ConvProblem) -> int:
        """Patches of each lane."""
        return -(-self.patches(problem) // (self.together * self.parts))


_SIZES = (
    (1, 1), (1, 4), (1, 8), (2, 1), (2, 2), (4, 1), (4, 2), (4, 4), (4, 7), (7, 1), (7, 2), (7, 4), (8, 2), (14, 1),
    (14, 2),
)  # fmt: skip
_ALONG_ROWS = tuple((1, _WARP * warps, warps) for warps in (1, 2, 4))
_ACROSS_CHANNELS = tuple(
    (channels, _WARP * warps * each, warps)
    for channels, warps, each in product((2, 4, 8, 16, 32, 64), (1, 2, 4), (1, 2))
    if channels <= _WARP * each
)
PATCHES = tuple(
    Patch(rows, columns, *lanes) for (rows, columns), lanes in product(_SIZES, (*_ALONG_ROWS, *_ACROSS_CHANNELS))
)


def tap_block(problem: ConvProblem) -> tuple[int, int]:
    """Rows and columns of the taps whose sums a thread keeps: a whole plane, or a block of a large filter. The last
    block may extend beyond the filter."""
    R, S = pair(problem.taps, 1)
    rows = columns = 1
    while R * S > _MOST_TAPS_UNDIVIDED and -(-R // rows) * -(-S // columns) > _MOST_TAPS_OF_A_BLOCK:
        if -(-R // rows) >= -(-S // columns):
            rows += 1
        else:
            columns += 1
    return -(-R // rows), -(-S // columns)


def spacings(problem: ConvProblem, patch: Patch) -> tuple[tuple[int, int], tuple[int, int]]:
    """For rows and columns: the distance of a patch's pixels in the output, and the distance of their inputs in
    dilations. The smallest with which taps of different pixels read the same inputs."""
    strides, dilations = pair(problem.stride, 1), pair(problem.dilation, 1)
    rows, columns = (
        (1, 1) if size == 1 else (dilation // gcd(stride, dilation), stride // gcd(stride, dilation))
        for size, stride, dilation in zip((patch.rows, patch.columns), strides, dilations, strict=True)
    )
    return rows, columns


def best_patches(problem: ConvProblem, device: DeviceFacts, count: int = MOST_PATCHES) -> tuple[Patch, ...]:
    """The ``count`` configurations with the lowest estimates, best first, with few similar ones."""
    ranked = sorted(_timed(problem, device), key=lambda timed: timed[0])
    seen: set[tuple[tuple[int, ...], int]] = set()
    alike = Counter[tuple[int, ...]]()
    chosen = []
    for _, warps, patch in ranked:
        kind = patch.columns, patch.each, *patch.taps(problem)
        if alike[kind] < _MOST_ALIKE and (kind, warps) not in seen:
            alike[kind] += 1
            seen.add((kind, warps))
            chosen.append(patch)
    return tuple(chosen[:count])


def _timed(problem: ConvProblem, device: DeviceFacts) -> Iterator[tuple[float, int, Patch]]:
    """Each configuration that is possible, with as many channels as fit its registers: the estimate, the warps per
    multiprocessor by which parts were chosen, and the patch."""
    lying = [patch for patch in PATCHES if _lies_well(patch, problem)]
    for patch, taps in product(lying, _divisions(problem)):
        filled = filled_patch(replace(patch, **taps), problem)
        if filled is not None:
            step, together = _step(filled, problem), _blocks_together(filled, problem)
            for parts, warps in _parts(filled, problem, device).items():
                parted = replace(filled, parts=parts)
                yield _cycles(parted, problem, device, step, together), warps, parted


def _divisions(problem: ConvProblem) -> Iterator[dict[str, int]]:
    """The taps that a thread may keep; of many, also half of the columns, which leaves registers for more pixels."""
    rows, columns = tap_block(problem)
    yield {}
    if rows * columns >= _LEAST_TAPS_HALVED:
        yield {"taps_h": rows, "taps_w": -(-columns // 2)}


def cycles(patch: Patch, problem: ConvProblem, device: DeviceFacts) -> float:
    """A rough time of a possible patch."""
    return _cycles(patch, problem, device, _step(patch, problem), _blocks_together(patch, problem))


def filled_patch(patch: Patch, problem: ConvProblem) -> Patch | None:
    """The patch with as many channels as fit a thread's registers; None if not even one fits."""
    all_inputs, all_outputs = group_sizes(problem)
    most_inputs = _MOST_INPUTS if patch.channels == 1 else 1
    for outputs in _divisors(all_outputs, all_outputs):
        for inputs in _divisors(all_inputs, most_inputs):
            filled = replace(patch, outputs=outputs, inputs=inputs)
            if _fits(filled, problem):
                return filled
    return None


def _divisors(number: int, most: int) -> list[int]:
    """The divisors up to ``most``, the largest first."""
    return [divisor for divisor in range(most, 0, -1) if number % divisor == 0]


def _fits(patch: Patch, problem: ConvProblem) -> bool:
    """Whether it compiles in acceptable time and without spilled registers."""
    sums, (reads, given) = patch.sums(problem), _accesses(patch, problem)
    walked = sums * (patch.rows * patch.columns + _STEPS_OF_A_SUM) + (reads + given) * _STEPS_OF_A_READ
    alone = patch.rows * patch.columns == 1
    return (
        sums * patch.each <= _MOST_SUMS
        and (alone or (reads + given) * walked**2 <= _MOST_WALKED)
        and _registers(patch, problem) <= _MOST_REGISTERS
        and patch.shared_bytes(problem) <= _MOST_SHARED_BYTES
        and patch.patches(problem) < _MOST_PATCHES_COUNTED
    )


def _accesses(patch: Patch, problem: ConvProblem) -> tuple[int, int]:
    """The numbers that a lane reads for one patch, of the input and of the gradient."""
    (R, S), ((_, apart_h), (_, apart_w)) = patch.taps(problem), spacings(problem, patch)
    reads = _read(patch.rows, apart_h, R) * _read(patch.columns, apart_w, S)
    return patch.inputs * reads, patch.outputs * patch.rows * patch.columns


def _read(size: int, apart: int, taps: int) -> int:
    """The rows (or columns) of the input that a patch of ``size`` reads."""
    return min((size - 1) * apart + taps, size * taps)


def _registers(patch: Patch, problem: ConvProblem) -> int:
    """Approximate registers of a thread: sums, the patch of the gradient, and two columns of the patch of the input."""
    R, _ = patch.taps(problem)
    (_, apart), _ = spacings(problem, patch)
    held = patch.sums(problem) + patch.outputs * patch.rows * patch.columns + 2 * ((patch.rows - 1) * apart + R)
    return patch.each * held + _OTHER_REGISTERS


def _lies_well(patch: Patch, problem: ConvProblem) -> bool:
    """Whether no patch is larger than an image, and lanes follow memory: across channels if these are adjacent."""
    x, (P, Q) = problem.x, pair(problem.y.shape[2:], 1)
    if patch.rows > P or patch.columns > Q:
        return False
    if patch.channels == 1:
        return x.shape[-1] == 1 or x.strides[-1] == 1 or x.strides[1] != 1
    return x.strides[1] == 1 and min(problem.c, _WARP * patch.each) <= patch.channels < 2 * problem.c


def _parts(patch: Patch, problem: ConvProblem, device: DeviceFacts) -> dict[int, int]:
    """Numbers of parts that fill all multiprocessors evenly, without empty parts, each with the least number of warps
    that leads to it."""
    steps, blocks = patch.steps(problem), patch.blocks_of_a_part(problem)
    found: dict[int, int] = {}
    for warps in _WARPS_EACH:
        wanted = warps * sm_count(device) // (blocks * patch.warps)
        found.setdefault(-(-steps // -(-steps // min(max(wanted, 1), steps))), warps)
    return found


def _cycles(patch: Patch, problem: ConvProblem, device: DeviceFacts, step: tuple[float, float], fitting: int) -> float:
    """A rough time on the busiest multiprocessor with ``fitting`` blocks, to drop patches that cannot win."""
    instructions, lines = step
    blocks = -(-patch.blocks_of_a_part(problem) * patch.parts // sm_count(device))
    together = min(blocks, fitting)
    busy = max(together * patch.warps * (instructions / _SCHEDULERS + lines), _WAITING_CYCLES + 2 * instructions)
    ending = _BLOCK_CYCLES + patch.sums(problem) * patch.each * _CYCLES_OF_A_SUM * (patch.together > 1)
    rounds = -(-blocks // together)
    adding = 0.0
    if patch.parts > 1:
        laid = sums_bytes(problem, patch.parts) / (sm_count(device) * CACHE_BYTES_PER_CYCLE)
        adding = sum_cycles(problem, patch.parts, device) + _LAYING * laid
    return rounds * (patch.steps(problem) * busy + ending) + adding


def _blocks_together(patch: Patch, problem: ConvProblem) -> int:
    """The number of blocks that fit on a multiprocessor."""
    warps = min(REGISTERS // (_WARP * _registers(patch, problem)), _MOST_WARPS)
    return max(min(warps // patch.warps, _SHARED_BYTES // max(patch.shared_bytes(problem), 1)), 1)


def _step(patch: Patch, problem: ConvProblem) -> tuple[float, float]:
    """Instructions of a warp for one patch per lane, and the cache lines that they read."""
    reads, given = _accesses(patch, problem)
    bounded = any(side for sides in problem.padding for side in sides)
    half = problem.dtype.nbytes < 4
    instructions = patch.each * (patch.sums(problem) * patch.rows * patch.columns + half * (reads + given))
    instructions += reads * (1 + 2 * bounded) + 2 * given + _PATCH_INSTRUCTIONS
    return instructions, reads * _lines(patch, problem, problem.x) + given * _lines(patch, problem, problem.y)


def _lines(patch: Patch, problem: ConvProblem, spec: TensorSpec) -> float:
    """Cache lines for one element of each lane of a warp."""
    if patch.channels > 1:
        between, lanes = spec.strides[1] * problem.dtype.nbytes, _WARP * patch.each
        return min(_WARP, max(lanes * between / _LINE_BYTES, 1, _WARP / patch.channels))
    step = patch.columns * spec.strides[-1] * (problem.stride[-1] if spec is problem.x else 1)
    return min(_WARP, max(_WARP * step * problem.dtype.nbytes / _LINE_BYTES, 1) + 0.5)


# Launches.


def blocks(problem: ConvProblem, patch: Patch) -> int:
    """The number of programs of the sums."""
    return patch.blocks_of_a_part(problem) * patch.parts


def constants(problem: ConvProblem, patch: Patch) -> dict[str, int | bool | str]:
    """Compile-time constants of the kernel of the sums."""
    (gap_h, apart_h), (gap_w, apart_w) = spacings(problem, patch)
    rows, columns = patch.taps(problem)
    window = window_constants(problem) | group_constants(problem) | channel_constants(problem)
    window |= depth_constants(problem) | weight_depth(problem)
    return window | weight_strides(problem) | {
        "GAP_H": gap_h, "GAP_W": gap_w, "APART_H": apart_h, "APART_W": apart_w,
        "TAPS_H": rows, "TAPS_W": columns,
        "ROWS": patch.rows, "COLUMNS": patch.columns, "OUTPUTS": patch.outputs, "INPUTS": patch.inputs,
        "PARTS": patch.parts, "STEPS": patch.steps(problem), "CHANNELS": patch.channels, "LANES": patch.lanes,
        "ACROSS": patch.across,
        "LEVELS": (patch.sums(problem) - 1).bit_length(),
        "DERIVATIVE": problem.epilogue.activation.value, "WITH_BIAS": problem.epilogue.bias,
        "BIAS_LEVELS": (patch.outputs - 1).bit_length(),
    }  # fmt: skip


def kernel_calls(candidate: Candidate) -> tuple[KernelCall, ...]:
    """The kernels to launch: the sums, and with several parts the kernel that adds them."""
    from convwright.backends.triton.few_weights.kernel import few_weights

    problem, patch = candidate.problem, Patch.of(candidate)
    dtype = problem.dtype
    x, dy, dw = ((dtype.value, spec.alignment) for spec in (problem.x, problem.y, problem.w))
    pointers = {"x": x, "dy": dy, "out": WORKSPACE if patch.parts > 1 else dw}
    values: dict[str, object] = {**constants(problem, patch)}
    if has_extended_epilogue(problem):
        pointers |= {"z": dy, "db": (dtype.value, dtype.nbytes)}
    else:
        values |= {"z": None, "db": None}
    sums = KernelCall(few_weights, pointers, values, blocks(problem, patch), patch.warps, 1)
    return (sums, *[sum_call(problem, patch.parts)] * (patch.parts > 1))
