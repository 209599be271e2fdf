"""Convolutions with few channels in each group, without a matrix product: supported problems, strips of threads,
launches.

Input gradients are supported too. Their dy may be multiplied by an activation's derivative.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import product

from convwright.backends.triton.compile_time import seconds_to_compile
from convwright.backends.triton.configuration import Configuration
from convwright.backends.triton.few_channels import FEW_OUTPUTS, absent_pointers, why_not_few
from convwright.backends.triton.launching.kernel_call import KernelCall
from convwright.backends.triton.multiprocessor import sm_count
from convwright.backends.triton.operands import offsets_are_wide
from convwright.backends.triton.sweep import Sweep, stride_constants, sweep_of, sweep_weight_strides, weight_constants
from convwright.core.candidate import Candidate, Offer, Refusal, Source
from convwright.core.device import DeviceFacts
from convwright.core.direction import Direction
from convwright.core.dtype import native_arithmetic
from convwright.core.epilogue import Activation, Epilogue
from convwright.core.policy import Policy
from convwright.core.problem import ConvProblem

ALGORITHM = "direct"
NAME = f"triton/{ALGORITHM}"


def offers(problem: ConvProblem, device: DeviceFacts, policy: Policy) -> Iterator[Offer]:
    """Every configuration worth trying, or the reason why the algorithm does not support the problem."""
    reason = why_not_few(problem)
    if reason is not None:
        yield Refusal(NAME, reason)
        return
    for strip in best_strips(sweep_of(problem), device):
        yield candidate_of(problem, strip)


def candidate_of(problem: ConvProblem, strip: Strip) -> Candidate:
    arithmetic = native_arithmetic(problem.dtype, tf32=False)
    return Candidate(
        problem, "triton", ALGORITHM, strip.config, arithmetic, 0, True, Source.RULE, compiles=True,
        compile_s=compile_s(strip, sweep_of(problem)),
    )  # fmt: skip


def cycles_of(candidate: Candidate, device: DeviceFacts) -> float:
    """Estimated cycles of the busiest multiprocessor."""
    return cycles(Strip.of(candidate), sweep_of(candidate.problem), device)


# Configurations and their estimated times.

MOST_STRIPS = 8
_MOST_WITH_ROWS, _MOST_WITH_THREADS = 3, 2  # strips with equal rows, and with equal columns per thread among them
_LANES = 32
# Registers of a thread for sums and weights.
_MOST_REGISTERS = 160
# Bounds on compile time: sums, fewer if groups of warps add theirs, since these read weights lane by lane.
_MOST_SUMS_OF_A_THREAD, _MOST_SPLIT_SUMS, _MOST_SPLIT_WEIGHTS = 32, 16, 64
# In an unrolled plane. With 84, twice, a kernel of 5x7 taps took 42 s to compile.
_MOST_READS = 40
_MOST_WEIGHTS = 400  # unrolled weights of a plane of one input channel
# If output channels are so many that they are divided, storing them takes as long as everything else.
_MOST_SUMS_OF_A_PART = 16
_SCHEDULERS = 4  # of a multiprocessor, each of which issues one instruction per cycle
# The costs of a load whose lanes are in different cache lines, and of packing a weight before the kernel.
_CYCLES_APART, _PACKING_CYCLES = 8, 5000
# A thread adds products one by one. For so many, a sum in four parts has half the error, which may decide whether the
# policy allows the kernel. So one configuration with parts is among the first.
_LONG_SUM, _PARTS_OF_LONG, _PLACE_OF_SPLIT = 256, 4, 3
# The memory latency of a step over one channel, with few warps.
_WAITING_CYCLES = 600


@dataclass(frozen=True, slots=True)
class Strip(Configuration):
    """The work of one block: ``bq`` columns of ``rows`` rows of an image, for ``outputs`` channels of a group.

    Groups of its warps split the input channels. ``across`` is 1 if its columns include all groups of channels;
    ``packed`` if the weight is then stored with the groups adjacent.
    """

    rows: int
    bq: int
    split: int
    across: int
    warps: int
    outputs: int = 1
    packed: int | None = None

    @property
    def columns_per_thread(self) -> int:
        return self.bq * self.split // (_LANES * self.warps)

    def blocks(self, sweep: Sweep) -> int:
        gap, _ = sweep.spacing
        depth, rows, columns = (track.places for track in sweep.tracks)
        apart, together = (1, sweep.groups) if self.across else (sweep.groups, 1)
        spans = -(-rows // (self.rows * gap)) * gap * -(-columns * together // self.bq)
        return sweep.read.shape[0] * depth * apart * spans * self.parts(sweep)

    def parts(self, sweep: Sweep) -> int:
        """The number of parts of a group's output channels."""
        return -(-sweep.outputs // self.outputs)


_ROWS = (1, 2, 4, 8)
STRIPS = (
    *(
        Strip(rows, _LANES * warps * columns, 1, 0, warps)
        for rows, columns, warps in product(_ROWS, (1, 2, 4), (1, 2, 4))
    ),
    *(Strip(rows, _LANES, split, 0, split) for rows, split in product(_ROWS, (2, 4, 8))),
    *(
        Strip(rows, _LANES * warps * columns, 1, 1, warps)
        for rows, columns, warps in product(_ROWS, (1, 2, 4), (1, 2, 4))
    ),
)


def best_strips(sweep: Sweep, device: DeviceFacts, count: int = MOST_STRIPS) -> tuple[Strip, ...]:
    """The ``count`` strips with the lowest estimates, best first, with few similar ones. If packing the weight is
    possible, both variants are included; for a long sum, one strip that splits it."""
    filled = (filled_strip(strip, sweep) for strip in STRIPS)
    fitting = [each for strip in filled if strip is not None for each in _ways(strip, sweep)]
    most = count if len({strip.packed for strip in fitting}) < 2 else count * 3 // 4
    ranked = sorted(fitting, key=lambda strip: cycles(strip, sweep, device))
    alike, chosen = Counter[tuple[int, ...]](), []
    for strip in ranked:
        way = (strip.packed or 0,)
        kind = *way, strip.rows, strip.across
        thread = *kind, strip.columns_per_thread
        if alike[kind] < _MOST_WITH_ROWS and alike[thread] < _MOST_WITH_THREADS and alike[way] < most:
            alike.update((way, kind, thread))
            chosen.append(strip)
    first = next((strip for strip in ranked if strip.split >= _PARTS_OF_LONG), None)
    if first is None or sweep.longest_sum < _LONG_SUM or first in chosen[: _PLACE_OF_SPLIT + 1]:
        return tuple(chosen[:count])
    others = [strip for strip in chosen if strip != first][: count - 1]
    return (*others[:_PLACE_OF_SPLIT], first, *others[_PLACE_OF_SPLIT:])


def _ways(strip: Strip, sweep: Sweep) -> Iterator[Strip]:
    """With the weight unpacked, and packed if lanes would read it with a large stride."""
    yield strip
    if sweep.in_lanes_only and sweep.groups > 1:
        yield replace(strip, packed=1)


def filled_strip(strip: Strip, sweep: Sweep) -> Strip | None:
    """The strip with all output channels that fit a thread's registers, in equal parts of a group; None if none fit."""
    if sweep.groups == 1 if strip.across else sweep.in_lanes_only:
        return None
    most = min(_most_outputs(strip, sweep), sweep.outputs)
    if sweep.outputs > FEW_OUTPUTS:
        most = min(most, _MOST_SUMS_OF_A_PART // (strip.rows * sweep.columns_together))
    if most < 1 or strip.split > sweep.inputs:
        return None
    return replace(strip, outputs=-(-sweep.outputs // -(-sweep.outputs // most)))


def has_loop(strip: Strip, sweep: Sweep) -> bool:
    """Whether the columns of taps are a loop, because unrolled they would take too many load instructions."""
    return _reads(strip, sweep) > _MOST_READS


def _reads(strip: Strip, sweep: Sweep, columns: int | None = None) -> int:
    """Load instructions for the input of a plane, or of ``columns`` columns of taps."""
    _, apart = sweep.spacing
    windows = [(R, columns or S) for T, R, S in sweep.windows() if T]
    return sweep.columns_together * sum(((strip.rows - 1) * apart + R) * S for R, S in windows)


def compile_s(strip: Strip, sweep: Sweep) -> float:
    """Estimated compile time. Everything is compiled twice, with masks and without."""
    columns = 1 if has_loop(strip, sweep) else None
    weights = strip.outputs * sum(R * (columns or S) for T, R, S in sweep.windows() if T)
    reads, writes = 2 * _reads(strip, sweep, columns), strip.rows * strip.outputs
    return seconds_to_compile(8 * (reads + 2 * weights) + 3 * weights * strip.rows, reads + writes)


def _most_outputs(strip: Strip, sweep: Sweep) -> int:
    """The most output channels with a short compile time and without spilled registers."""
    _, rows, _ = (track.most_taps for track in sweep.tracks)
    weights = sum(R * (1 if has_loop(strip, sweep) else S) for T, R, S in sweep.windows() if T)
    sums = strip.rows * sweep.columns_together
    most = min(
        _MOST_SUMS_OF_A_THREAD // sums,
        _MOST_WEIGHTS // max(weights, 1),
        _MOST_REGISTERS // (sums * strip.columns_per_thread + rows),
    )
    if strip.split == 1:
        return most
    return min(most, _MOST_SPLIT_SUMS // sums, _MOST_SPLIT_WEIGHTS // max(weights, 1))


def cycles(strip: Strip, sweep: Sweep, device: DeviceFacts) -> float:
    """A rough time on the busiest multiprocessor, good enough to drop strips that cannot win."""
    _, apart = sweep.spacing
    warps = -(-strip.blocks(sweep) // sm_count(device)) * strip.warps
    busy = 0.0
    weight_reads = strip.columns_per_thread if strip.across else 1
    if strip.packed:
        weight_reads = -(-weight_reads // sweep.groups_together)
        busy += _PACKING_CYCLES
    elif sweep.in_lanes_only:
        weight_reads *= _CYCLES_APART
    for T, R, S in sweep.windows():
        reads = ((strip.rows - 1) * apart + R) * S * -(-strip.columns_per_thread // sweep.read_together)
        weights = R * S * strip.outputs
        read = reads + weights * weight_reads
        instructions = read + weights * strip.rows * strip.columns_per_thread
        issuing = max(warps * read, -(-warps // _SCHEDULERS) * instructions)
        busy += -(-sweep.inputs // strip.split) * T * max(issuing, _WAITING_CYCLES + instructions)
    return busy


# Launches.


def blocks(problem: ConvProblem, strip: Strip) -> int:
    """The number of programs of one launch."""
    return strip.blocks(sweep_of(problem))


def constants(problem: ConvProblem, strip: Strip) -> dict[str, object]:
    """Compile-time constants of the kernel."""
    sweep, backward = sweep_of(problem), problem.direction is Direction.BACKWARD_DATA
    gap, apart = sweep.spacing
    epilogue = Epilogue() if backward else problem.epilogue
    values: dict[str, object] = {
        "N": problem.n, "G": sweep.groups, "C": sweep.inputs, "K": sweep.outputs, "FLIP": sweep.mirrored,
        "WIDE": offsets_are_wide(sweep.read, sweep.written),
        "BIAS": epilogue.bias, "RESIDUAL": epilogue.residual, "ACTIVATION": epilogue.activation.value,
        "DERIVATIVE": (problem.epilogue.activation if backward else Activation.NONE).value,
        "GAP": gap, "APART": apart, "ROWS": strip.rows, "BQ": strip.bq, "SPLIT": strip.split,
        "ACROSS": strip.across == 1, "CHANNELS_LAST": sweep.in_lanes_only, "OUTPUTS": strip.outputs,
        "TOGETHER": sweep.columns_together, "LARGE": has_loop(strip, sweep),
    }  # fmt: skip
    lying = sweep_weight_strides(problem, packed=bool(strip.packed))
    return values | stride_constants(sweep) | weight_constants(problem, lying) | _window_constants(sweep, lying)


def _window_constants(sweep: Sweep, lying: dict[str, int]) -> dict[str, object]:
    """For each dimension, sizes and windows, and the distance of a phase's taps in the weight."""
    values: dict[str, object] = {}
    names = ("D", "Z", "T"), ("H", "P", "R"), ("W", "Q", "S")
    for (read, written, taps), track in zip(names, sweep.tracks, strict=True):
        stride = lying[f"W_{taps}"]
        values |= {
            read: track.read, written: track.written, f"W_{taps}": stride * track.step,
            f"STRIDE_{read}": track.stride, f"DILATION_{read}": track.dilation,
            f"PHASES_{read}": tuple((phase.taps, phase.before, phase.first * stride) for phase in track.phases),
        }  # fmt: skip
    return values


def kernel_calls(candidate: Candidate) -> tuple[KernelCall]:
    """The kernel to launch."""
    from convwright.backends.triton.direct.kernel import direct

    problem, strip = candidate.problem, Strip.of(candidate)
    sweep, nbytes = sweep_of(problem), problem.dtype.nbytes
    # With a known alignment the compiler gives each thread adjacent elements for vector loads. If the input of other
    # taps is not aligned, lanes that read one element each are faster.
    aligned = sweep.read_together * nbytes
    read, written = (max(nbytes, min(each.alignment, aligned)) for each in (sweep.read, sweep.written))
    if sweep.columns_together > 1:
        written = min(sweep.written.alignment, max(written, sweep.columns_together * nbytes))
    weight = sweep.groups_together * nbytes if strip.packed else nbytes
    pointers = {"x": read, "w": weight, "bias": nbytes, "residual": written, "y": written, "z": read}
    absent = absent_pointers(candidate)
    values = constants(problem, strip) | dict.fromkeys(absent)
    named = {name: (problem.dtype.value, alignment) for name, alignment in pointers.items() if name not in absent}
    return (KernelCall(direct, named, values, blocks(problem, strip), strip.warps, 1),)
