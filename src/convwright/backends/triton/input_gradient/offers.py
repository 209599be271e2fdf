"""Input gradients as one matrix product per phase: supported problems, phases, tiles, launches."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import accumulate, product
from math import gcd, prod

from convwright.backends.triton.gemm.algorithms import (
    DTYPES,
    Algorithm,
    algorithm_of,
    algorithms_of,
    arithmetic_constants,
)
from convwright.backends.triton.gemm.tiles import Tile, shapes_first, tiles
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
    MOST_ELEMENTS,
    depth_constants,
    group_constants,
    group_reason,
    group_sizes,
    layout_reason,
    plane_constants,
    shape_reason,
    size_reason,
    weight_reason,
    window_constants,
)
from convwright.backends.triton.packing.call import turned_rows_call
from convwright.core.candidate import Candidate, Offer, Refusal, Source
from convwright.core.device import DeviceFacts
from convwright.core.dtype import Arithmetic, DType
from convwright.core.geometry import Axis
from convwright.core.policy import Policy
from convwright.core.problem import ConvProblem

KERNEL = "input-gradient"
NAME = f"triton/{KERNEL}"


def is_turned(problem: ConvProblem, tile: Tile) -> bool:
    """Whether the weight is stored as C T R S K, contiguous along the sum, and not as K T R S C, its channels-last
    order.

    fp32 on tensor cores requires it. Other dtypes use it unless whole tiles can be read along the channels.
    """
    return problem.dtype is DType.FP32 or group_sizes(problem)[0] % tile.bn > 0


# A program searches its phase among them.
_MOST_PHASES = 64


def offers(problem: ConvProblem, device: DeviceFacts, policy: Policy) -> Iterator[Offer]:
    """Every configuration worth trying, or the reason why the algorithm does not support the problem."""
    reason = refusal_reason(problem)
    for algorithm in algorithms_of(KERNEL, problem.dtype):
        if reason is not None:
            yield Refusal(algorithm.id, reason)
            continue
        arithmetic, split = algorithm.arithmetic, algorithm.split
        for tile in best_tiles(problem, arithmetic, device, split=split, count=algorithm.tiles):
            yield candidate_of(problem, algorithm, tile)


def candidate_of(problem: ConvProblem, algorithm: Algorithm, tile: Tile) -> Candidate:
    return Candidate(
        problem, "triton", algorithm.name, tile.config, algorithm.arithmetic, 0, True, Source.RULE,
        tiled=tiled_products(tile, problem), compiles=True,
    )  # fmt: skip


def cycles_of(candidate: Candidate, device: DeviceFacts) -> float:
    """Estimated cycles of the busiest multiprocessor."""
    problem, algorithm = candidate.problem, algorithm_of(candidate, KERNEL)
    return cycles(Tile.of(candidate), problem, phases(problem), algorithm.arithmetic, device, split=algorithm.split)


def refusal_reason(problem: ConvProblem) -> str | None:
    """Why the kernel cannot compute ``problem``; None if it can."""
    operands = {"gradient": problem.y, "input": problem.x}
    return (
        shape_reason(problem, DTYPES, groups=True, volumes=True)
        or group_reason(problem)
        or _window_reason(problem)
        or layout_reason(operands)
        or size_reason(problem, operands)
        or weight_reason(problem)
        or _pixels_reason(problem)
    )


def _window_reason(problem: ConvProblem) -> str | None:
    if all(stride == 1 for stride in problem.stride):
        return "needs a stride above 1; `as-forward` supports stride 1"
    for axis in problem.axes:
        if gcd(axis.stride, axis.dilation) > 1:
            return f"needs dilation and stride without a common divisor, got {axis.dilation} and {axis.stride}"
    if prod(problem.stride) > _MOST_PHASES:
        return f"needs a product of the strides of at most {_MOST_PHASES}, got {prod(problem.stride)}"
    return None


def _pixels_reason(problem: ConvProblem) -> str | None:
    pixels = problem.x.numel // problem.c
    return None if pixels < MOST_ELEMENTS else f"needs at most 2^30 input pixels, got {pixels:,}"


# Input pixels that the same taps reach, with windows more than one pixel apart.

_ONE = Axis(size=1, taps=1, stride=1, pad=(0, 0), dilation=1)


@dataclass(frozen=True, slots=True)
class Phase:
    """The pixels that one tap reaches, at multiples of the strides.

    ``tap`` is the first such tap in three dimensions. If the filter does not have it, no tap reaches these pixels, and
    ``taps`` is 0. ``pixels`` counts the whole batch.
    """

    tap: tuple[int, int, int]
    pixels: int
    taps: int


def phases(problem: ConvProblem) -> tuple[Phase, ...]:
    """All phases that have pixels, those with most taps first. Dimensions that the problem does not have come first."""
    axes = _axes(problem)
    every = (
        Phase(
            (t, r, s),
            problem.n * prod(map(len, map(_pixels, axes, (t, r, s)))),
            prod(map(_taps, axes, (t, r, s))),
        )
        for t, r, s in product(*(range(axis.stride) for axis in axes))
    )
    return tuple(sorted((phase for phase in every if phase.pixels), key=lambda phase: -phase.taps))


def reads_beyond(problem: ConvProblem) -> bool:
    """Whether a tap of some pixel lies outside the output."""
    return any(_reads_beyond(axis, tap) for axis in _axes(problem) for tap in range(min(axis.stride, axis.taps)))


def _axes(problem: ConvProblem) -> tuple[Axis, ...]:
    return (_ONE,) * (3 - problem.rank) + problem.axes


def _pixels(axis: Axis, tap: int) -> range:
    return range((tap * axis.dilation - axis.pad[0]) % axis.stride, axis.size, axis.stride)


def _taps(axis: Axis, tap: int) -> int:
    return len(range(tap, axis.taps, axis.stride))


def _reads_beyond(axis: Axis, tap: int) -> bool:
    pixels = _pixels(axis, tap)
    if not pixels:
        return False
    first, last = ((pixel + axis.pad[0] - tap * axis.dilation) // axis.stride for pixel in (pixels[0], pixels[-1]))
    return first < (_taps(axis, tap) - 1) * axis.dilation or last >= axis.out


# Configurations and their estimated times.


def best_tiles(
    problem: ConvProblem, arithmetic: Arithmetic, device: DeviceFacts, *, split: bool, count: int
) -> tuple[Tile, ...]:
    """The ``count`` tiles with the lowest estimates, the best of each shape first."""
    limit, nbytes, all_phases = shared_limit(device), problem.dtype.nbytes, phases(problem)

    def taken(tile: Tile) -> float:
        return cycles(tile, problem, all_phases, arithmetic, device, split=split)

    fitting = [tile for tile in tiles(arithmetic, split=split) if tile.shared_bytes(nbytes, split=split) <= limit]
    return shapes_first(sorted(fitting, key=taken)[:count])


def blocks_of(phase: Phase, problem: ConvProblem, tile: Tile) -> int:
    """The number of programs of a phase."""
    return -(-phase.pixels // tile.bm) * -(-group_sizes(problem)[0] // tile.bn) * problem.groups


def tiled_products(tile: Tile, problem: ConvProblem) -> int:
    """Multiplications in the blocks of all phases, including idle ones."""
    channels = group_sizes(problem)[1]
    return sum(
        blocks_of(phase, problem, tile) * tile.products(tile.steps(channels, phase.taps)) for phase in phases(problem)
    )


def cycles(
    tile: Tile,
    problem: ConvProblem,
    all_phases: tuple[Phase, ...],
    arithmetic: Arithmetic,
    device: DeviceFacts,
    *,
    split: bool,
) -> float:
    """A rough time of all multiprocessors, good enough to drop tiles that cannot win."""
    sms = sm_count(device)
    blocks = [blocks_of(phase, problem, tile) for phase in all_phases]
    fitting = max(1, shared_limit(device) // tile.shared_bytes(problem.dtype.nbytes, split=split))
    together = min(-(-sum(blocks) // sms), fitting, MOST_WARPS // tile.warps)
    products = tile.bm * tile.bn * tile.bk / products_per_cycle(arithmetic, tile.bm)
    loads = (tile.bm + tile.bn * (1 + split)) * tile.bk * problem.dtype.nbytes / CACHE_BYTES_PER_CYCLE
    step = max(products, loads) + STEP_CYCLES / together
    of_block = [
        tile.steps(group_sizes(problem)[1], phase.taps) * step + BLOCK_CYCLES / together for phase in all_phases
    ]

    # Blocks of the heaviest phases run first. Lighter ones fill the gaps without shortening them: the busiest
    # multiprocessor has its share of all phases, and whole blocks of the heavy ones.
    begun = [sum(blocks[: place + 1]) for place in range(len(blocks))]
    whole = max(-(-count // sms) * cycles for count, cycles in zip(begun, of_block, strict=True))
    return max(whole, sum(count * cycles for count, cycles in zip(blocks, of_block, strict=True)) / sms)


# Launches.


def blocks(problem: ConvProblem, tile: Tile) -> int:
    """The number of programs of one launch."""
    return sum(blocks_of(phase, problem, tile) for phase in phases(problem))


def _weight_strides(problem: ConvProblem, tile: Tile) -> dict[str, int]:
    taps, c, k = prod(problem.taps), *group_sizes(problem)
    if is_turned(problem, tile):
        return {"W_C": taps * k, "W_TAP": k, "W_K": 1}
    return {"W_K": taps * c, "W_TAP": c, "W_C": 1}


def constants(problem: ConvProblem, algorithm: Algorithm, tile: Tile) -> dict[str, object]:
    """Compile-time constants of the kernel."""
    found = phases(problem)
    begun = accumulate((blocks_of(phase, problem, tile) for phase in found), initial=0)
    window = window_constants(problem) | depth_constants(problem) | group_constants(problem) | plane_constants(problem)
    return window | _weight_strides(problem, tile) | arithmetic_constants(algorithm, tile) | {
        "PADDED": reads_beyond(problem), "FLAT": tile.runs_across_taps(group_sizes(problem)[1], found[0].taps),
        "PHASES": tuple((first, *phase.tap) for first, phase in zip(begun, found, strict=False)),
    }  # fmt: skip


def kernel_calls(candidate: Candidate) -> tuple[KernelCall, ...]:
    """The kernels to launch: the product, and the kernel that packs the weight."""
    from convwright.backends.triton.input_gradient.kernel import input_gradient

    problem, tile = candidate.problem, Tile.of(candidate)
    specs = {"dy": problem.y, "w": problem.w, "dx": problem.x}
    pointers = {name: (problem.dtype.value, spec.alignment) for name, spec in specs.items()}
    algorithm = algorithm_of(candidate, KERNEL)
    packing = (turned_rows_call(problem, split=algorithm.split),) if algorithm.packed else ()
    values = constants(problem, algorithm, tile)
    product = KernelCall(input_gradient, pointers, values, blocks(problem, tile), tile.warps, tile.stages, tile.regs)
    return product, *packing
