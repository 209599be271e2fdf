"""Convolutions with few channels in each group, by sums that are no matrix product: what is served, the strips that
threads compute, and what is launched.

Gradients of inputs are served too. Their dy may be multiplied by an activation's derivative.
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
from convwright.backends.triton.sweep import Sweep, lying_constants, sweep_of, weight_constants, weight_lying
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
    """Every configuration worth trying, or why the algorithm cannot serve."""
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
    """What its tiles estimate that the busiest multiprocessor takes."""
    return cycles(Strip.of(candidate), sweep_of(candidate.problem), device)


# Configurations, and how long each should take.

MOST_STRIPS = 8
_MOST_WITH_ROWS, _MOST_WITH_THREADS = 3, 2  # of as many rows, and of threads that compute as many columns of them
_LANES = 32
# Registers that sums and weights of a thread may take.
_MOST_REGISTERS = 160
# What takes the compiler long: sums, more so where groups of warps add theirs up, which read weights lane by lane, too.
_MOST_SUMS_OF_A_THREAD, _MOST_SPLIT_SUMS, _MOST_SPLIT_WEIGHTS = 32, 16, 64
# Of a plane that is written out. With 84, twice, a kernel of 5x7 taps took the compiler 42 s.
_MOST_READS = 40
_MOST_WEIGHTS = 400  # of a plane of an input channel that are written out
# Where output channels are so many that they are divided, to write them takes as long as all else.
_MOST_SUMS_OF_A_PART = 16
_SCHEDULERS = 4  # of a multiprocessor, each of which issues one instruction at a time
# To read what lies in as many lines of the cache as a warp has lanes, and to pack a weight ahead of the kernel.
_CYCLES_APART, _PACKING_CYCLES = 8, 5000
# A thread adds products up one by one. Of so many, a sum in four parts has half the error, which may decide whether the
# kernel is allowed; so one that splits them stands among the first few.
_LONG_SUM, _PARTS_OF_LONG, _PLACE_OF_SPLIT = 256, 4, 3
# How long a step over one channel waits for memory, however few warps there are.
_WAITING_CYCLES = 600


@dataclass(frozen=True, slots=True)
class Strip(Configuration):
    """What one block computes: ``bq`` columns of as many rows of an image as ``rows`` says, for ``outputs`` channels
    of a group.

    The input channels are split among so many groups of its warps. ``across`` is 1 where its columns are those of all
    groups of channels; ``packed`` where for these the weight was laid as those lie, side by side.
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
        """Into how many parts the output channels of a group are divided."""
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
    """The ``count`` strips that should be fastest, by estimate, the best first, and few alike: where the weight may be
    packed, both ways are among them; where a sum is long, one that splits it."""
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
    """With the weight as it lies, and packed where lanes run along it otherwise far apart."""
    yield strip
    if sweep.in_lanes_only and sweep.groups > 1:
        yield replace(strip, packed=1)


def filled_strip(strip: Strip, sweep: Sweep) -> Strip | None:
    """With as many output channels as a thread has registers for, all parts of a group alike; None where it does not
    serve."""
    if sweep.groups == 1 if strip.across else sweep.in_lanes_only:
        return None
    most = min(_most_outputs(strip, sweep), sweep.outputs)
    if sweep.outputs > FEW_OUTPUTS:
        most = min(most, _MOST_SUMS_OF_A_PART // (strip.rows * sweep.columns_together))
    if most < 1 or strip.split > sweep.inputs:
        return None
    return replace(strip, outputs=-(-sweep.outputs // -(-sweep.outputs // most)))


def has_loop(strip: Strip, sweep: Sweep) -> bool:
    """Whether the columns of taps are a loop: written out they would be read by too many instructions."""
    return _reads(strip, sweep) > _MOST_READS


def _reads(strip: Strip, sweep: Sweep, columns: int | None = None) -> int:
    """Instructions that read the input of a plane, or of so many columns of taps."""
    _, apart = sweep.spacing
    windows = [(R, columns or S) for T, R, S in sweep.windows() if T]
    return sweep.columns_together * sum(((strip.rows - 1) * apart + R) * S for R, S in windows)


def compile_s(strip: Strip, sweep: Sweep) -> float:
    """Everything is there twice, with masks and without."""
    columns = 1 if has_loop(strip, sweep) else None
    weights = strip.outputs * sum(R * (columns or S) for T, R, S in sweep.windows() if T)
    reads, writes = 2 * _reads(strip, sweep, columns), strip.rows * strip.outputs
    return seconds_to_compile(8 * (reads + 2 * weights) + 3 * weights * strip.rows, reads + writes)


def _most_outputs(strip: Strip, sweep: Sweep) -> int:
    """With which it is compiled soon, and into registers."""
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
    """A rough time on the busiest multiprocessor: good enough to drop the strips that cannot win."""
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


# What is launched.


def blocks(problem: ConvProblem, strip: Strip) -> int:
    """How many programs one launch needs."""
    return strip.blocks(sweep_of(problem))


def constants(problem: ConvProblem, strip: Strip) -> dict[str, object]:
    """What the kernel is compiled for."""
    sweep, backward = sweep_of(problem), problem.direction is Direction.BACKWARD_DATA
    gap, apart = sweep.spacing
    epilogue = Epilogue() if backward else problem.epilogue
    told: dict[str, object] = {
        "N": problem.n, "G": sweep.groups, "C": sweep.inputs, "K": sweep.outputs, "FLIP": sweep.mirrored,
        "WIDE": offsets_are_wide(sweep.read, sweep.written),
        "BIAS": epilogue.bias, "RESIDUAL": epilogue.residual, "ACTIVATION": epilogue.activation.value,
        "DERIVATIVE": (problem.epilogue.activation if backward else Activation.NONE).value,
        "GAP": gap, "APART": apart, "ROWS": strip.rows, "BQ": strip.bq, "SPLIT": strip.split,
        "ACROSS": strip.across == 1, "CHANNELS_LAST": sweep.in_lanes_only, "OUTPUTS": strip.outputs,
        "TOGETHER": sweep.columns_together, "LARGE": has_loop(strip, sweep),
    }  # fmt: skip
    lying = weight_lying(problem, packed=bool(strip.packed))
    return told | lying_constants(sweep) | weight_constants(problem, lying) | _window_constants(sweep, lying)


def _window_constants(sweep: Sweep, lying: dict[str, int]) -> dict[str, object]:
    """Of each dimension its sizes and windows, and of a phase's taps how far they lie apart in the weight."""
    told: dict[str, object] = {}
    names = ("D", "Z", "T"), ("H", "P", "R"), ("W", "Q", "S")
    for (read, written, taps), track in zip(names, sweep.tracks, strict=True):
        stride = lying[f"W_{taps}"]
        told |= {
            read: track.read, written: track.written, f"W_{taps}": stride * track.step,
            f"STRIDE_{read}": track.stride, f"DILATION_{read}": track.dilation,
            f"PHASES_{read}": tuple((phase.taps, phase.before, phase.first * stride) for phase in track.phases),
        }  # fmt: skip
    return told


def kernel_calls(candidate: Candidate) -> tuple[KernelCall]:
    """What the driver is asked to launch for ``candidate``."""
    from convwright.backends.triton.direct.kernel import direct

    problem, strip = candidate.problem, Strip.of(candidate)
    sweep, nbytes = sweep_of(problem), problem.dtype.nbytes
    # Told of an alignment, the compiler gives each thread neighbours to read at once. What another tap reads may begin
    # elsewhere: where that is not aligned, lanes that read one element each at a time are faster.
    aligned = sweep.read_together * nbytes
    read, written = (max(nbytes, min(each.alignment, aligned)) for each in (sweep.read, sweep.written))
    if sweep.columns_together > 1:
        written = min(sweep.written.alignment, max(written, sweep.columns_together * nbytes))
    weight = sweep.groups_together * nbytes if strip.packed else nbytes
    pointers = {"x": read, "w": weight, "bias": nbytes, "residual": written, "y": written, "z": read}
    absent = absent_pointers(candidate)
    told = constants(problem, strip) | dict.fromkeys(absent)
    named = {name: (problem.dtype.value, alignment) for name, alignment in pointers.items() if name not in absent}
    return (KernelCall(direct, named, told, blocks(problem, strip), strip.warps, 1),)
