"""Convolutions with few channels in each group, by patches: supported problems and launches."""

from __future__ import annotations

from collections.abc import Iterator
from math import gcd, prod

from convwright.backends.triton.few_channels import absent_pointers, why_not_few
from convwright.backends.triton.launching.kernel_call import KernelCall
from convwright.backends.triton.operands import offsets_are_wide
from convwright.backends.triton.sweep import Sweep, stride_constants, sweep_of, sweep_weight_strides, weight_constants
from convwright.backends.triton.wide_direct.patches import (
    Patch,
    best_patches,
    columns_at_once,
    compile_s,
    cycles,
    reading,
    turns,
)
from convwright.core.candidate import Candidate, Offer, Refusal, Source
from convwright.core.device import DeviceFacts
from convwright.core.direction import Direction
from convwright.core.dtype import native_arithmetic
from convwright.core.epilogue import Activation, Epilogue
from convwright.core.policy import Policy
from convwright.core.problem import ConvProblem

ALGORITHM = "wide-direct"
NAME = f"triton/{ALGORITHM}"
_MOST_TAPS_IN_ROW = 64


def offers(problem: ConvProblem, device: DeviceFacts, policy: Policy) -> Iterator[Offer]:
    """Every configuration worth trying, or the reason why the algorithm does not support the problem."""
    reason = refusal_reason(problem)
    if reason is not None:
        yield Refusal(NAME, reason)
        return
    for patch in best_patches(sweep_of(problem), device):
        yield candidate_of(problem, patch)


def candidate_of(problem: ConvProblem, patch: Patch) -> Candidate:
    arithmetic = native_arithmetic(problem.dtype, tf32=False)
    return Candidate(
        problem, "triton", ALGORITHM, patch.config, arithmetic, 0, True, Source.RULE, compiles=True,
        compile_s=compile_s(patch, sweep_of(problem)),
    )  # fmt: skip


def cycles_of(candidate: Candidate, device: DeviceFacts) -> float:
    """Estimated cycles of the busiest multiprocessor."""
    return cycles(Patch.of(candidate), sweep_of(candidate.problem), device)


def refusal_reason(problem: ConvProblem) -> str | None:
    """Why the kernel cannot compute ``problem``; None if it can."""
    return why_not_few(problem) or _patch_reason(sweep_of(problem))


def _patch_reason(sweep: Sweep) -> str | None:
    phases = prod(len(track.phases) for track in sweep.tracks)
    if phases > 1:
        return f"needs stride 1 for an input gradient, got strides with product {phases}; `direct` supports them"
    columns = sweep.tracks[2]
    if columns.most_taps > _MOST_TAPS_IN_ROW:
        return f"needs at most {_MOST_TAPS_IN_ROW} taps in a row, got {columns.most_taps}"
    if not prod(track.most_taps for track in sweep.tracks):
        return "needs a tap that reads the input, got only padding; `direct` supports this"
    if sweep.in_lanes_only:
        if (sweep.inputs, sweep.outputs) != (1, 1):
            return f"needs one channel per group with channels last, got {sweep.inputs} to {sweep.outputs}"
    elif columns_at_once(sweep.read) < 2:
        lying = f"a width of {sweep.read.shape[-1]} and strides {sweep.read.strides}"
        return f"needs rows with even addresses and widths, got {lying}; `direct` supports others"
    return None


# Launches.


def constants(problem: ConvProblem, patch: Patch) -> dict[str, object]:
    """Compile-time constants of the kernel."""
    sweep, backward = sweep_of(problem), problem.direction is Direction.BACKWARD_DATA
    gap, apart = sweep.spacing
    epilogue = Epilogue() if backward else problem.epilogue
    columns = reading(sweep.tracks[2], patch.cols, 1 if patch.vector else columns_at_once(sweep.read))
    values: dict[str, object] = {
        "N": problem.n, "G": sweep.groups, "C": sweep.inputs, "K": sweep.outputs, "FLIP": sweep.mirrored,
        "WIDE": offsets_are_wide(sweep.read, sweep.written),
        "BIAS": epilogue.bias, "RESIDUAL": epilogue.residual, "ACTIVATION": epilogue.activation.value,
        "DERIVATIVE": (problem.epilogue.activation if backward else Activation.NONE).value,
        "GAP": gap, "APART": apart, "ROWS": patch.rows, "COLS": patch.cols, "OUTPUTS": patch.outputs,
        "WRITTEN": patch.vector or gcd(patch.cols, columns_at_once(sweep.written)),
        "PIECES": columns.pieces, "PLACES": columns.places, "BY_ROW": patch.by_row == 1,
        "SPLIT": patch.split, "VECTOR": patch.vector or 0, "PATCHES": patch.patches,
        "TURNS": turns(patch, sweep), "KEPT": patch.kept or 0,
    }  # fmt: skip
    lying = sweep_weight_strides(problem, packed=bool(patch.packed))
    return values | stride_constants(sweep) | weight_constants(problem, lying) | _window_constants(sweep, lying)


def _window_constants(sweep: Sweep, lying: dict[str, int]) -> dict[str, int]:
    """For each dimension, sizes and the window; and the offset of the first tap in the weight. PIECES and PLACES
    describe the window of the columns."""
    values, first_tap = dict[str, int](), 0
    names = ("D", "Z", "T", "FRONT"), ("H", "P", "R", "TOP"), ("W", "Q", "S", "LEFT")
    for (read, written, taps, before), track in zip(names, sweep.tracks, strict=True):
        (phase,) = track.phases
        first_tap += phase.first * lying[f"W_{taps}"]
        values |= {
            read: track.read, written: track.written, taps: phase.taps, before: phase.before,
            f"W_{taps}": lying[f"W_{taps}"] * track.step,
            f"STRIDE_{read}": track.stride, f"DILATION_{read}": track.dilation,
        }  # fmt: skip
    del values["LEFT"], values["DILATION_W"]
    return values | {"W_FIRST": first_tap}


def kernel_calls(candidate: Candidate) -> tuple[KernelCall]:
    """The kernel to launch."""
    from convwright.backends.triton.wide_direct.kernel import wide_direct

    problem, patch = candidate.problem, Patch.of(candidate)
    sweep, nbytes = sweep_of(problem), problem.dtype.nbytes
    if patch.vector:
        read = written = patch.vector * nbytes
    else:
        read, written = (columns_at_once(spec) * nbytes for spec in (sweep.read, sweep.written))
    weight = (patch.vector or 1) * nbytes if patch.packed else nbytes
    pointers = {"x": read, "w": weight, "bias": nbytes, "residual": written, "y": written, "z": read}
    absent = absent_pointers(candidate)
    values = constants(problem, patch) | dict.fromkeys(absent)
    named = {name: (problem.dtype.value, alignment) for name, alignment in pointers.items() if name not in absent}
    return (KernelCall(wide_direct, named, values, patch.blocks(sweep), patch.warps, 1),)
