"""The implicit GEMM's algorithms: supported problems, tiles, launches."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from math import prod

from convwright.backends.triton.gemm.algorithms import (
    DTYPES,
    NARROW_DTYPES,
    Algorithm,
    algorithm_of,
    algorithms_of,
    algorithms_to_be_named,
    arithmetic_constants,
    step_constants,
    why_not_named,
)
from convwright.backends.triton.gemm.tiles import Tile, shapes_first, tiles
from convwright.backends.triton.launching.kernel_call import WORKSPACE, KernelCall
from convwright.backends.triton.multiprocessor import (
    BLOCK_CYCLES,
    CACHE_BYTES_PER_CYCLE,
    MORE_KERNEL_CYCLES,
    MOST_WARPS,
    STEP_CYCLES,
    parts_that_fill,
    products_per_cycle,
    shared_limit,
    sm_count,
)
from convwright.backends.triton.operands import (
    LEAST_OF_A_GROUP,
    depth_constants,
    group_constants,
    group_reason,
    group_sizes,
    is_channels_last,
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
from convwright.backends.triton.packing.call import rows_call
from convwright.core.candidate import Candidate, Offer, Refusal, Source
from convwright.core.device import DeviceFacts
from convwright.core.direction import Direction
from convwright.core.dtype import Arithmetic, DType
from convwright.core.epilogue import Epilogue
from convwright.core.policy import Policy
from convwright.core.problem import ConvProblem
from convwright.core.tensor_spec import Layout

KERNEL = "implicit-gemm"
NAME = f"triton/{KERNEL}"


# Outputs of a program that adds parts. If outputs are many, a lane adds several; if they are few, different lanes read
# different parts.
_MANY_OUTPUTS, _OUTPUTS_OF_MANY, _OUTPUTS, _PARTS_AT_ONCE = 2**17, 512, 128, 32
_TIMES_ACROSS_TAPS = 1.7  # times the estimate, if elements are loaded one by one (medians, H200)
_OUTPUT_CONSTANTS = (
    "N", "Z", "P", "Q", "Y_N", "Y_K", "Y_Z", "Y_P", "Y_Q", "Y_PLANES",
    "SCALE", "BIAS", "RESIDUAL", "ACTIVATION", "WIDE", "PARTS", "WHOLE",
)  # fmt: skip
_OLDEST_WITH_FP8 = 89
# The most products of two int8 whose sum always fits int32.
_MOST_OF_INT8 = (2**31 - 1) // 2**14


def offers(problem: ConvProblem, device: DeviceFacts, policy: Policy) -> Iterator[Offer]:
    """Every configuration worth trying, or the reason why the algorithm does not support the problem."""
    refused = refusal_reason(problem) or _architecture_reason(problem, device)
    for algorithm in (*algorithms_of(KERNEL, problem.dtype), *algorithms_to_be_named(KERNEL, problem.dtype)):
        reason = refused or why_not_named(algorithm, problem.dtype, policy)
        if reason is not None:
            yield Refusal(algorithm.id, reason)
            continue
        arithmetic, split = algorithm.arithmetic, algorithm.split
        for tile in best_tiles(problem, arithmetic, device, split=split, count=algorithm.tiles):
            yield candidate_of(problem, algorithm, tile)


def candidate_of(problem: ConvProblem, algorithm: Algorithm, tile: Tile) -> Candidate:
    # A kernel that is not cached takes 0.3 to 0.6 s to build (H200, Triton 3.6).
    return Candidate(
        problem, "triton", algorithm.name, tile.config, algorithm.arithmetic, sums_bytes(tile, problem), True,
        Source.RULE, tiled=tiled_products(tile, problem), compiles=True,
    )  # fmt: skip


def cycles_of(candidate: Candidate, device: DeviceFacts) -> float:
    """Estimated cycles of the busiest multiprocessor."""
    problem, algorithm, tile = candidate.problem, algorithm_of(candidate, KERNEL), Tile.of(candidate)
    one_by_one = tile.runs_across_taps(problem.w.shape[1], prod(problem.taps))
    times = _TIMES_ACROSS_TAPS if one_by_one else 1.0
    return times * cycles(tile, problem, algorithm.arithmetic, device, split=algorithm.split)


def refusal_reason(problem: ConvProblem) -> str | None:
    """Why the kernel cannot compute ``problem``; None if it can."""
    if problem.direction is not Direction.FORWARD:
        return f"computes only the forward direction, got {problem.direction}"
    # With channels last, direct supports no group with this many inputs, however few its outputs are.
    few = group_reason(problem, least_outputs=1 if is_channels_last(problem.x) else LEAST_OF_A_GROUP)
    hint = "" if problem.dtype.narrow else "; `direct` supports smaller groups"
    operands = {"input": problem.x, "output": problem.y}
    return (
        shape_reason(problem, (*DTYPES, *NARROW_DTYPES), groups=True, volumes=True, scaled=problem.dtype.narrow)
        or (None if few is None else few + hint)
        or layout_reason(operands)
        or _narrow_reason(problem)
        or size_reason(problem, operands)
        or weight_reason(problem)
    )


def _narrow_reason(problem: ConvProblem) -> str | None:
    if problem.dtype.narrow and not is_channels_last(problem.x):
        return f"needs a channels-last `input` of {problem.dtype}, got stride {problem.x.strides[1]} along channels"
    if problem.dtype is DType.INT8 and problem.reduction > _MOST_OF_INT8:
        return f"needs at most {_MOST_OF_INT8:,} int8 products per int32 sum, got {problem.reduction:,}"
    return None


def _architecture_reason(problem: ConvProblem, device: DeviceFacts) -> str | None:
    if not problem.dtype.narrow or problem.dtype is DType.INT8 or device.kind != "cuda":
        return None
    number = int(device.architecture.removeprefix("sm_"))
    if number >= _OLDEST_WITH_FP8:
        return None
    return f"needs sm_{_OLDEST_WITH_FP8} or newer for {problem.dtype}, got {device.name} ({device.architecture})"


# Configurations and their estimated times.

_MOST_STAGES = 6
_FEWEST_STEPS_OF_A_PART = 4
_MOST_SUMS_BYTES = 2**26
# Blocks per multiprocessor. With numbers between these, some multiprocessors would wait for others.
_BLOCKS_EACH = (1, 2)
_CYCLES_OF_A_PART = 25  # to add one more
_DOUBT = 1.1  # on the estimates of parts, which are least certain
_DOUBT_WHERE_IDLE = 1.7  # compared with tiles that leave multiprocessors idle


def tiles_of(tile: Tile, problem: ConvProblem) -> int:
    """The number of blocks that compute the whole sum, or one part of it."""
    _, outputs = group_sizes(problem)
    return -(-pixel_count(problem) // tile.bm) * -(-outputs // tile.bn) * problem.groups


def tiled_products(tile: Tile, problem: ConvProblem) -> int:
    """Multiplications in all blocks, including idle ones."""
    return tiles_of(tile, problem) * tile.products(tile.steps(problem.w.shape[1], prod(problem.taps)))


def sums_bytes(tile: Tile, problem: ConvProblem) -> int:
    """Bytes of the sums of all parts, in fp32."""
    return problem.y.numel * 4 * (tile.parts or 0) if tile.in_parts else 0


def best_tiles(
    problem: ConvProblem, arithmetic: Arithmetic, device: DeviceFacts, *, split: bool, count: int
) -> tuple[Tile, ...]:
    """The ``count`` tiles with the lowest estimates, the best of each shape first.

    At least half of them compute whole sums. The others have parts and are estimated to be faster than all of these,
    or, one of them, may be faster or avoids idle multiprocessors; or they have more stages, if nothing else hides
    latency.
    """
    limit, nbytes = shared_limit(device), problem.dtype.nbytes
    fitting = [tile for tile in tiles(arithmetic, split=split) if tile.shared_bytes(nbytes, split=split) <= limit]

    def taken(tile: Tile) -> float:
        return cycles(tile, problem, arithmetic, device, split=split) * (_DOUBT if tile.in_parts else 1)

    whole = sorted(fitting, key=taken)
    parted = sorted((each for tile in fitting for each in _parted(tile, problem, device)), key=taken)
    idle = tiles_of(whole[0], problem) < sm_count(device)
    worth = (_DOUBT_WHERE_IDLE if idle else _DOUBT) * taken(whole[0])
    shapes = {(tile.bm, tile.bn): tile for tile in reversed(parted) if taken(tile) < worth}
    ahead = sorted(shapes.values(), key=taken)
    deeper = [*_deeper(whole[0], problem, device, split)]
    if ahead and taken(ahead[0]) < taken(whole[0]):
        more = [*ahead[:2], *_deeper(ahead[0], problem, device, split), *deeper, *ahead[2:]]
    else:
        more = [*ahead[:1], *deeper]
    more = more[: count // 2]
    return shapes_first(sorted([*whole[: count - len(more)], *more], key=taken))


def _parted(tile: Tile, problem: ConvProblem, device: DeviceFacts) -> Iterator[Tile]:
    """The tile in each number of parts that fills all multiprocessors."""
    steps = tile.steps(problem.w.shape[1], prod(problem.taps))
    blocks = [each * sm_count(device) for each in _BLOCKS_EACH]
    for parts in parts_that_fill(tiles_of(tile, problem), steps, blocks, fewest_steps=_FEWEST_STEPS_OF_A_PART):
        if parts == 1:
            continue
        parted = replace(tile, parts=parts)
        if _blocks_each(parted, problem, device) == 1:
            parted = replace(parted, regs=None)  # no other block would need them
        if sums_bytes(parted, problem) <= _MOST_SUMS_BYTES:
            yield parted


def _deeper(tile: Tile, problem: ConvProblem, device: DeviceFacts, split: bool) -> Iterator[Tile]:
    """The tile with as many stages as fit, if no multiprocessor has a second block."""
    channels, taps = problem.w.shape[1], prod(problem.taps)
    if _blocks_each(tile, problem, device) > 1 or tile.runs_across_taps(channels, taps):
        return  # steps across taps load elements one by one, without stages
    most = min(_MOST_STAGES, tile.steps_each(channels, taps))
    deeper = [replace(tile, stages=stages) for stages in range(tile.stages + 1, most + 1)]
    fitting = [each for each in deeper if each.shared_bytes(problem.dtype.nbytes, split=split) <= shared_limit(device)]
    yield from fitting[-1:]


def _blocks_together(tile: Tile, problem: ConvProblem, device: DeviceFacts, split: bool) -> int:
    """The number of blocks that run concurrently on a multiprocessor."""
    fitting = max(1, shared_limit(device) // tile.shared_bytes(problem.dtype.nbytes, split=split))
    return min(_blocks_each(tile, problem, device), fitting, MOST_WARPS // tile.warps)


def _blocks_each(tile: Tile, problem: ConvProblem, device: DeviceFacts) -> int:
    """The number of blocks of the busiest multiprocessor."""
    return -(-tiles_of(tile, problem) * (tile.parts or 1) // sm_count(device))


def cycles(tile: Tile, problem: ConvProblem, arithmetic: Arithmetic, device: DeviceFacts, *, split: bool) -> float:
    """A rough time on the busiest multiprocessor, good enough to drop tiles that cannot win."""
    together = _blocks_together(tile, problem, device, split)
    steps = tile.steps_each(problem.w.shape[1], prod(problem.taps))
    products = tile.bm * tile.bn * tile.bk / products_per_cycle(arithmetic, tile.bm)
    loads = (tile.bm + tile.bn * (1 + split)) * tile.bk * problem.dtype.nbytes / CACHE_BYTES_PER_CYCLE
    block = steps * (max(products, loads) + STEP_CYCLES / together) + BLOCK_CYCLES / together
    return _blocks_each(tile, problem, device) * block + _adding_cycles(tile, problem, device)


def _adding_cycles(tile: Tile, problem: ConvProblem, device: DeviceFacts) -> float:
    """Of the kernel that adds the parts, and of storing what it reads."""
    if not tile.in_parts:
        return 0
    moved = 2 * sums_bytes(tile, problem) + problem.y.nbytes
    adding = MORE_KERNEL_CYCLES + (tile.parts or 1) * _CYCLES_OF_A_PART
    return adding + moved / (sm_count(device) * CACHE_BYTES_PER_CYCLE)


# Launches.


def blocks(problem: ConvProblem, tile: Tile) -> int:
    """The number of programs of one launch."""
    return tiles_of(tile, problem) * (tile.parts or 1)


def constants(problem: ConvProblem, algorithm: Algorithm, tile: Tile) -> dict[str, int | bool | str]:
    """Compile-time constants of the kernel."""
    window = window_constants(problem) | depth_constants(problem) | group_constants(problem)
    multiplied = arithmetic_constants(algorithm, tile) | step_constants(algorithm)
    return window | plane_constants(problem) | multiplied | {
        "SCALE": problem.epilogue.scale, "BIAS": problem.epilogue.bias, "RESIDUAL": problem.epilogue.residual,
        "ACTIVATION": problem.epilogue.activation.value,
        "FLAT": tile.runs_across_taps(problem.w.shape[1], prod(problem.taps)),
        "PARTS": tile.parts or 1, "WHOLE": problem.dtype is DType.INT8,
    }  # fmt: skip


def writing_sums(problem: ConvProblem) -> ConvProblem:
    """The problem that the product of one part computes: only the sums, stored contiguously."""
    return replace(problem, y=problem.y.dense(Layout.NHWC), epilogue=Epilogue())


def output_blocks(problem: ConvProblem) -> int:
    bm, bn = _output_tile(problem)
    return -(-pixel_count(problem) // bm) * -(-problem.k // bn)


def output_constants(problem: ConvProblem, algorithm: Algorithm, tile: Tile) -> dict[str, int | bool | str]:
    """Compile-time constants of the kernel that adds the parts."""
    bm, bn = _output_tile(problem)
    values = constants(problem, algorithm, tile)
    return {name: values[name] for name in _OUTPUT_CONSTANTS} | {
        "K": problem.k, "AT_ONCE": 1 if _is_many(problem) else min(_PARTS_AT_ONCE, power_of_two(tile.parts or 1)),
        "BM": bm, "BN": bn,
    }  # fmt: skip


def _output_tile(problem: ConvProblem) -> tuple[int, int]:
    """Pixels by channels. For NCHW, too, several adjacent pixels."""
    if _is_many(problem):
        outputs, widest = _OUTPUTS_OF_MANY, 16 if is_in_planes(problem.y) else 128
    else:
        outputs, widest = _OUTPUTS, 8 if is_in_planes(problem.y) else 64
    bn = min(widest, power_of_two(problem.k))
    return min(outputs // bn, power_of_two(pixel_count(problem))), bn


def _is_many(problem: ConvProblem) -> bool:
    return problem.y.numel >= _MANY_OUTPUTS


def kernel_calls(candidate: Candidate) -> tuple[KernelCall, ...]:
    """The kernels to launch: the product; with several parts, their sum; and the kernel that packs the weight."""
    from convwright.backends.triton.implicit_gemm.kernel import implicit_gemm, output_of_parts

    problem, tile = candidate.problem, Tile.of(candidate)
    # The residual has the output's layout. The bias and the scale need few loads, so no alignment is assumed.
    x, w, y = ((spec.dtype.value, spec.alignment) for spec in (problem.x, problem.w, problem.y))
    channel = (problem.dtype.added.value, problem.dtype.added.nbytes)
    pointers = {"x": x, "w": w, "bias": channel, "residual": y, "y": y}
    # A missing scale is no operand.
    scale, no_scale = ({"scale": channel}, {}) if problem.epilogue.scale else ({}, {"scale": None})
    algorithm, grid = algorithm_of(candidate, KERNEL), blocks(problem, tile)
    packing = (rows_call(problem, split=algorithm.split),) if algorithm.packed else ()
    if not tile.in_parts:
        values = constants(problem, algorithm, tile) | no_scale
        whole = KernelCall(implicit_gemm, pointers | scale, values, grid, tile.warps, tile.stages, tile.regs)
        return whole, *packing
    values, parts = constants(writing_sums(problem), algorithm, tile) | {"scale": None}, {**pointers, "y": WORKSPACE}
    product = KernelCall(implicit_gemm, parts, values, grid, tile.warps, tile.stages, tile.regs)
    added = {"sums": WORKSPACE, **{name: pointers[name] for name in ("bias", "residual", "y")}, **scale}
    values = output_constants(problem, algorithm, tile) | no_scale
    return product, KernelCall(output_of_parts, added, values, output_blocks(problem), 4, 1), *packing
