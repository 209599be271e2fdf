"""The patches of threads, their costs, and the few that are worth trying on a problem."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import chain, islice, product
from math import gcd, log2

from convwright.backends.triton.compile_time import seconds_to_compile
from convwright.backends.triton.configuration import Configuration
from convwright.backends.triton.multiprocessor import sm_count
from convwright.backends.triton.operands import moves
from convwright.backends.triton.sweep import AT_ONCE_BYTES, Sweep, Track
from convwright.core.device import DeviceFacts
from convwright.core.tensor_spec import TensorSpec

MOST_PATCHES = 8
_LANES = 32
_ROWS = (1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 16)
_COLS, _COLS_IN_LANES = (2, 4, 8), (1, 2, 3, 4, 6, 7, 8)
_WARPS, _SPLITS, _VECTORS = (1, 2, 4, 8), (1, 2, 4, 8), (1, 2, 4, 8)
# For patches that keep their input: with more turns, warps are fewer and wait together.
_ROWS_KEPT, _WARPS_KEPT, _OUTPUTS_KEPT, _TURNS_KEPT = (1, 2, 3, 4), (4, 2, 1), (4, 8), (2, 4)
_MOST_KEPT = 81  # numbers of an input: with more, patches take up to 12 s to compile
_STRIPS = (1, 2, 3, 4, 6, 8)  # parts of an image's rows if the input rows are a loop
# Registers that a thread may use, and those of a multiprocessor that all threads share.
_MOST_REGISTERS, _REGISTERS_OF_ALL, _OTHER_REGISTERS = 168, 65536, 24
_MOST_WEIGHTS_AHEAD = 32  # of a loop over output channels, which are loaded as registers are free
# Bounds on compile time: unrolled products. With lanes across groups they compile longest: beyond this many take 12 to
# 28 s and are 5 % faster than a strip.
_MOST_WRITTEN_OUT, _MOST_WRITTEN_OUT_IN_LANES, _MOST_TAPS_WRITTEN_OUT = 1400, 800, 64
_MOST_SUMS_OF_A_PART = 16  # in rows and output channels, if these are so many that they are divided
_SCHEDULERS = 4  # of a multiprocessor, each of which issues one instruction per cycle
_LINE_BYTES = 128
_COLUMNS_WRITTEN = 4  # at once
_MOST_WARPS, _MOST_BLOCKS = 64, 32  # of a multiprocessor at once
_FEW_WARPS = 6  # so few leave half of its time unused
_PACKING_CYCLES = 5000  # to pack a weight before the kernel
_WAITING_CYCLES, _ROW_CYCLES, _TURN_CYCLES = 800, 100, 500  # for memory: once, per row, per row loaded ahead
_STARTING_CYCLES = 175  # between two blocks of a multiprocessor
_SHUFFLED_CYCLES, _SHARED_CYCLES = 8, 120  # to add two parts of a sum
_PACKED_INSTRUCTIONS, _EXCHANGED_INSTRUCTIONS = 3, 8  # per weight, the latter if lanes read for one another


@dataclass(frozen=True, slots=True)
class Patch(Configuration):
    """The work of one thread: ``cols`` columns of ``rows`` rows, for ``outputs`` channels of a group.

    Groups of a block's lanes split the input channels. ``by_row`` is 1 if the rows of the filter are a loop. With
    channels last it computes ``vector`` groups at once; ``packed`` if the weight is then stored with the groups
    adjacent. ``rolled`` is 1 if the input rows are a loop. With ``kept`` a thread keeps its input and computes
    ``outputs`` channels in each of ``kept`` turns.
    """

    rows: int
    cols: int
    warps: int
    split: int = 1
    outputs: int = 1
    by_row: int | None = None
    vector: int | None = None
    packed: int | None = None
    rolled: int | None = None
    kept: int | None = None

    @property
    def patches(self) -> int:
        """The patches of one block."""
        return _LANES * self.warps // self.split

    def blocks(self, sweep: Sweep) -> int:
        units = _thread(self, sweep).units
        if self.vector:
            return -(-units * (sweep.groups // self.vector) // self.patches)
        return -(-units // self.patches) * sweep.groups * -(-sweep.outputs // (self.outputs * (self.kept or 1)))


@lru_cache(maxsize=256)
def best_patches(sweep: Sweep, device: DeviceFacts, count: int = MOST_PATCHES) -> tuple[Patch, ...]:
    """The ``count`` patches with the lowest estimates, best first, with few similar ones. Variants that pack the
    weight, split sums, keep their input or loop over input rows are all included. The second is the best loop, which
    compiles in a tenth of the time, or, if the first keeps its input, the best that does not, in half the time."""
    ranked = sorted(patches(sweep), key=lambda patch: cycles(patch, sweep, device))
    alike, unlike = Counter[object](), list[Patch]()
    of_each = {_way(patch): patch for patch in reversed(ranked)}
    most = {1: count, 2: count * 3 // 4}.get(len(of_each), count * 3 // 8)
    for patch in ranked:
        way = _way(patch)
        thread = patch.rows, patch.cols, patch.vector, way, patch.outputs if patch.kept else None
        if not alike[thread] and alike[way] < most:
            alike.update((thread, way))
            unlike.append(patch)
    # The best of its variant is always the first that is unlike others.
    others = [patch for patch in unlike if patch is not of_each[_way(patch)]]
    taken = {*of_each.values(), *others[: max(count - len(of_each), 0)]}
    chosen = [patch for patch in unlike if patch in taken][:count]
    soon = next((patch for patch in chosen if patch.rolled or (chosen[0].kept and not patch.kept)), None)
    if soon and soon is not chosen[0]:
        chosen.remove(soon)
        chosen.insert(1, soon)
    return tuple(chosen)


def _way(patch: Patch) -> object:
    return patch.packed, patch.split, patch.rolled, bool(patch.kept)


def patches(sweep: Sweep) -> Iterator[Patch]:
    """All possible patches."""
    if sweep.in_lanes_only:
        vectors = [vector for vector in _VECTORS if groups_at_once(sweep) % vector == 0]
        written_out = product(_ROWS, _COLS_IN_LANES, vectors, _ways(sweep), (None,))
        loops = product(_strips(sweep), _COLS_IN_LANES, vectors, (None,), (1,))
        for rows, cols, vector, by_row, rolled in chain(written_out, loops):
            if _fits(Patch(rows, cols, 1, by_row=by_row, vector=vector, rolled=rolled), sweep):
                for warps, packed in product(_WARPS, (None, 1)):
                    yield Patch(rows, cols, warps, by_row=by_row, vector=vector, packed=packed, rolled=rolled)
        return
    for rows, cols, warps, split, by_row in product(_ROWS, _COLS, _WARPS, _SPLITS, _ways(sweep)):
        # Parts within one warp are added by shuffles, warps of a block through its shared memory.
        if split < 2 * sweep.inputs and (split <= warps or warps == 1):
            yield from _filled(Patch(rows, cols, warps, split, by_row=by_row), sweep)
    yield from _keeping(sweep)


def _keeping(sweep: Sweep) -> Iterator[Patch]:
    """Patches that keep their input: for images with more output channels than one turn computes."""
    depth, _, _ = sweep.tracks
    if not _is_flat(depth):
        return
    for rows, cols, warps, outputs, turns in product(_ROWS_KEPT, _COLS, _WARPS_KEPT, _OUTPUTS_KEPT, _TURNS_KEPT):
        patch = Patch(rows, cols, warps, outputs=outputs, kept=turns)
        fits = _fits(patch, sweep) and _thread(patch, sweep).columns <= _MOST_KEPT
        if -(-sweep.outputs // outputs) % turns == 0 and fits:
            yield patch


def _is_flat(depth: Track) -> bool:
    """Whether there is one plane, and one tap, which reads it."""
    return (depth.read, depth.written, depth.most_taps, depth.phases[0].before) == (1, 1, 1, 0)


def _strips(sweep: Sweep) -> list[int]:
    """The numbers of rows of strips that loop over input rows; none if no two output rows share an input row."""
    depth, rows, _ = sweep.tracks
    gap, apart = sweep.spacing
    if not _is_flat(depth) or rows.most_taps <= apart:
        return []
    of_a_phase = -(-rows.places // gap)
    return sorted({-(-of_a_phase // strips) for strips in _STRIPS})


def turns(patch: Patch, sweep: Sweep) -> tuple[int, int] | None:
    """The range of turns of a patch that loops over input rows: turn 0 reads what only its first row needs. If one
    patch is as high as the image, turns that would read above or below it are left out."""
    if not patch.rolled:
        return None
    rows = sweep.tracks[1]
    (gap, apart), (window,) = sweep.spacing, rows.phases
    under_way = -(-window.taps // apart) - 1
    if gap > 1 or patch.rows < rows.places:
        return 0, patch.rows + under_way
    # An image's rows, in dilations from the row that turn 0 begins with.
    first, last = -(-window.before // rows.dilation), (window.before + rows.read - 1) // rows.dilation
    last_needed = max(last // apart + 1, rows.places, under_way)
    return min(first // apart, under_way), min(last_needed, rows.places + under_way)


def _ways(sweep: Sweep) -> tuple[int | None, ...]:
    return (None, 1) if sweep.tracks[1].most_taps > 1 else (None,)


def _filled(patch: Patch, sweep: Sweep) -> Iterator[Patch]:
    """The patch with as many output channels as fit, in equal parts of a group; none if not even one fits."""
    most = min(sweep.outputs, max(1, _MOST_SUMS_OF_A_PART // patch.rows))
    counts = dict.fromkeys(-(-sweep.outputs // -(-sweep.outputs // each)) for each in range(most, 0, -1))
    ways = (replace(patch, outputs=count) for count in counts)
    yield from islice((each for each in ways if _fits(each, sweep)), 1)


def _fits(patch: Patch, sweep: Sweep) -> bool:
    """Whether it compiles in acceptable time, into registers, and computes hardly more rows and columns than exist."""
    _, rows, columns = sweep.tracks
    gap, _ = sweep.spacing
    if patch.rows > max(1, -(-rows.places // gap)) or patch.cols > max(2, columns.places):
        return False
    if _thread(patch, sweep).products > (_MOST_WRITTEN_OUT_IN_LANES if patch.vector else _MOST_WRITTEN_OUT):
        return False
    return registers(patch, sweep) <= _MOST_REGISTERS


def registers(patch: Patch, sweep: Sweep) -> int:
    """Of a thread: its sums, the row that it has read, and its weights, unless all lanes share these."""
    thread = _thread(patch, sweep)
    shared = patch.vector is None and patch.split == 1 and thread.weights <= _MOST_TAPS_WRITTEN_OUT
    weights = 0 if shared else min(thread.weights, _MOST_WEIGHTS_AHEAD) if patch.kept else thread.weights
    return thread.sums + thread.columns + weights + _OTHER_REGISTERS


def compile_s(patch: Patch, sweep: Sweep) -> float:
    """Estimated compile time, mostly of unrolled products and their operands."""
    thread = _thread(patch, sweep)
    written = patch.rows * patch.outputs * -(-patch.cols // _COLUMNS_WRITTEN)
    instructions = 2 * thread.instructions // (patch.kept or 1)  # turns are a loop
    return seconds_to_compile(instructions, thread.rows * thread.pieces + written)


def cycles(patch: Patch, sweep: Sweep, device: DeviceFacts) -> float:
    """A rough time on the busiest multiprocessor, good enough to drop patches that cannot win."""
    thread = _thread(patch, sweep)
    blocks = -(-patch.blocks(sweep) // sm_count(device))
    warps = blocks * patch.warps
    most = min(_MOST_WARPS, _MOST_BLOCKS * patch.warps, _REGISTERS_OF_ALL // (_LANES * registers(patch, sweep)))
    waves = -(-warps // most)
    issuing = max(-(-warps // _SCHEDULERS) * thread.instructions, warps * _lines(patch, thread, sweep))
    issuing *= 1 + _FEW_WARPS / min(warps, most)
    taken = turns(patch, sweep)
    if taken:
        # Each turn loads for the next one, and weights are loaded ahead of all.
        first = thread.weights * (_PACKED_INSTRUCTIONS if patch.packed else _EXCHANGED_INSTRUCTIONS)
        busy = (taken[1] - taken[0]) * max(issuing, waves * max(_TURN_CYCLES, thread.instructions))
        busy += -(-warps // _SCHEDULERS) * first + waves * 2 * _WAITING_CYCLES
    else:
        steps = _steps(patch, sweep)
        # A loop begins to load for a step when the previous one is done, and not all of its rows find registers at
        # once. All warps of a wave begin together, so none computes while others wait.
        waiting = _WAITING_CYCLES + (thread.rows * _ROW_CYCLES if steps > 1 else 0)
        busy = steps * (max(issuing, waves * thread.instructions) + waves * waiting)
    if patch.split > 1:
        each = _SHUFFLED_CYCLES if patch.patches < _LANES else _SHARED_CYCLES
        busy += waves * thread.sums * each * log2(patch.split)
    lines_written = thread.lines_written * (patch.rows if patch.rolled else 1)
    busy += warps * lines_written + (_PACKING_CYCLES if patch.packed else 0)
    return max(busy, blocks * _STARTING_CYCLES)


def _steps(patch: Patch, sweep: Sweep) -> int:
    """Planes of taps and input channels, or rows of those, one after another."""
    if patch.kept:
        return 1
    depth, rows, _ = sweep.tracks
    return -(-sweep.inputs // patch.split) * depth.most_taps * (rows.most_taps if patch.by_row else 1)


def _lines(patch: Patch, thread: Thread, sweep: Sweep) -> float:
    """Cache lines that a warp requests in a step."""
    nbytes = sweep.read.dtype.nbytes
    if patch.vector:
        whole = -(-_LANES * patch.vector * nbytes // _LINE_BYTES)
        weights = 0 if patch.rolled else thread.weights // patch.vector
        return thread.rows * thread.pieces * whole + weights * (whole if patch.packed else _LANES * patch.vector / 4)
    side_by_side = min(_LANES, patch.patches)
    each = max(1, side_by_side * patch.cols * sweep.tracks[2].stride * nbytes / _LINE_BYTES)
    lines = thread.rows * thread.pieces * min(side_by_side, each) * (_LANES // side_by_side)
    return lines + (thread.weights if patch.split > 1 or patch.kept else thread.weights / 4)


def _thread(patch: Patch, sweep: Sweep) -> Thread:
    if patch.rolled:
        return of_strip(sweep, patch.rows, patch.cols, patch.vector or 1)
    if patch.kept:
        return of_kept(sweep, patch.rows, patch.cols, patch.outputs, patch.kept)
    return of_patch(sweep, patch.rows, patch.cols, patch.outputs, patch.by_row, patch.vector)


# The costs of a patch for its thread, regardless of the number of warps and parts.

_TURN_INSTRUCTIONS = 15  # of a loop over rows, whatever it computes


@dataclass(frozen=True, slots=True)
class Thread:
    """``units``: patches of one channel; ``lines_written``: cache lines that a warp writes, once per instruction. Per
    step, which is a plane of one input channel or, in a strip, the input row of a turn: ``rows`` that are read,
    ``pieces`` of each, ``columns`` kept at a time, ``weights``, ``products``, and ``instructions``. A patch that keeps
    its input has one step, and its ``products`` are those of a turn."""

    units: int
    lines_written: int
    sums: int
    rows: int
    pieces: int
    columns: int
    weights: int
    products: int
    instructions: int


@lru_cache(maxsize=4096)
def of_patch(sweep: Sweep, rows: int, cols: int, outputs: int, by_row: int | None, vector: int | None) -> Thread:
    """The costs of an unrolled patch."""
    _, high, columns = sweep.tracks
    (_, apart), nbytes, groups = sweep.spacing, sweep.read.dtype.nbytes, vector or 1
    taps = 1 if by_row else high.most_taps
    read = reading(columns, cols, 1 if vector else columns_at_once(sweep.read))
    rows_read = (rows - 1) * apart + taps
    weights = taps * columns.most_taps * outputs * groups
    kept = len({place for places in read.places for place in places}) * groups

    written = sweep.written.dtype.nbytes
    if vector:
        lines_written = rows * cols * -(-_LANES * vector * written // _LINE_BYTES)
    else:
        together = gcd(cols, columns_at_once(sweep.written))
        lines_written = rows * outputs * (cols // together) * -(-_LANES * cols * written // _LINE_BYTES)
    products = weights * rows * cols
    for_weights = (weights if nbytes < 4 else weights // groups) * 2
    instructions = rows_read * _row_instructions(sweep, cols, vector) + products + for_weights
    sums = rows * cols * outputs * groups
    units = _units(sweep, rows, cols)
    return Thread(units, lines_written, sums, rows_read, len(read.pieces), kept, weights, products, instructions)


@lru_cache(maxsize=4096)
def of_kept(sweep: Sweep, rows: int, cols: int, outputs: int, turns: int) -> Thread:
    """The costs of a patch that keeps its input and computes ``outputs`` output channels in each of ``turns`` turns."""
    one, inputs = of_patch(sweep, rows, cols, outputs, None, None), sweep.inputs
    to_read, for_weights = one.rows * _row_instructions(sweep, cols, None), one.weights
    return replace(
        one,
        lines_written=turns * one.lines_written,
        rows=inputs * one.rows,
        columns=inputs * one.rows * one.columns,
        weights=turns * inputs * one.weights,
        products=inputs * one.products,
        instructions=inputs * (to_read + turns * (one.products + for_weights)),
    )


@lru_cache(maxsize=4096)
def of_strip(sweep: Sweep, rows: int, cols: int, vector: int) -> Thread:
    """The costs of a patch that loops over input rows: a turn is like a patch of one row, but it leaves sums of more
    rows unfinished, and loads the input of the next turn meanwhile."""
    _, apart = sweep.spacing
    one = of_patch(sweep, 1, cols, 1, None, vector)
    read = apart * (_row_instructions(sweep, cols, vector) + one.columns)
    to_write = one.lines_written + (one.sums if sweep.written.dtype.nbytes < 4 else 0)
    return replace(
        one,
        units=_units(sweep, rows, cols),
        sums=one.sums * -(-sweep.tracks[1].most_taps // apart),
        rows=apart,
        columns=2 * apart * one.columns,
        instructions=read + one.products + to_write + _TURN_INSTRUCTIONS,
    )


def _row_instructions(sweep: Sweep, cols: int, vector: int | None) -> int:
    """Instructions that read a row. Elements outside the image cost a mask, zeros and a condition."""
    read, nbytes = reading(sweep.tracks[2], cols, 1 if vector else columns_at_once(sweep.read)), sweep.read.dtype.nbytes
    converted = sum(width for _, width in read.pieces) * (vector or 1) if nbytes < 4 else 0
    return len(read.pieces) * 3 + converted


def _units(sweep: Sweep, rows: int, cols: int) -> int:
    depth, high, columns = sweep.tracks
    gap, _ = sweep.spacing
    return sweep.read.shape[0] * depth.places * -(-high.places // (rows * gap)) * gap * -(-columns.places // cols)


# The elements that a patch reads of a row: pieces of one load each, and the columns of its taps among them.


@dataclass(frozen=True, slots=True)
class Reading:
    """``pieces`` are ranges of columns relative to the patch's first one, (first, width), in order. For each column of
    taps, ``places`` has the indices of the patch's columns among them."""

    pieces: tuple[tuple[int, int], ...]
    places: tuple[tuple[int, ...], ...]


@lru_cache(maxsize=256)  # the patches of a problem need few of them, several times each
def reading(columns: Track, cols: int, at_once: int) -> Reading:
    """For ``cols`` columns of the output. A load reads at most ``at_once`` columns, aligned to its width."""
    phase = columns.phases[0]
    wanted = [
        [col * columns.stride + tap * columns.dilation - phase.before for col in range(cols)]
        for tap in range(phase.taps)
    ]
    most = gcd(at_once, cols * columns.stride)
    pieces = tuple(_pieces({place for places in wanted for place in places}, most))
    read = [first + place for first, width in pieces for place in range(width)]
    found = {place: index for index, place in enumerate(read)}
    return Reading(pieces, tuple(tuple(found[place] for place in places) for places in wanted))


def _pieces(wanted: set[int], most: int) -> list[tuple[int, int]]:
    """The fewest pieces that begin at multiples of their width, each no wider than necessary."""
    pieces = []
    for first in sorted({place // most * most for place in wanted}):
        here = [place for place in wanted if place // most * most == first]
        width = next(width for width in _powers(most) if min(here) // width == max(here) // width)
        pieces.append((min(here) // width * width, width))
    return pieces


def _powers(most: int) -> list[int]:
    return [1 << power for power in range(most.bit_length())]


def columns_at_once(spec: TensorSpec) -> int:
    """The columns of a row that one instruction reads or writes: contiguous and aligned in every row."""
    others = moves(spec)[:-1]
    return gcd(AT_ONCE_BYTES // spec.dtype.nbytes, spec.shape[-1], spec.alignment // spec.dtype.nbytes, *others)


def groups_at_once(sweep: Sweep) -> int:
    """The contiguous groups that one instruction reads or writes."""
    numbers = [sweep.groups]
    for spec in sweep.read, sweep.written:
        images, _, *pixels = moves(spec)
        numbers += [AT_ONCE_BYTES // spec.dtype.nbytes, spec.alignment // spec.dtype.nbytes, images, *pixels]
    return gcd(*numbers)
