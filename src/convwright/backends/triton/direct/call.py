"""The kernel for few channels, and what it is told about one problem."""

from __future__ import annotations

from convwright.backends.triton.direct.offers import blocks, constants
from convwright.backends.triton.direct.tiles import Strip
from convwright.backends.triton.launching.kernel_call import KernelCall
from convwright.backends.triton.sweep import sweep_of
from convwright.core.candidate import Candidate
from convwright.core.direction import Direction
from convwright.core.fusing import has_extended_epilogue


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


def absent_pointers(candidate: Candidate) -> tuple[str, ...]:
    """Which operands there are not."""
    if candidate.problem.direction is Direction.FORWARD:
        return ("z",)
    return ("bias", "residual") if has_extended_epilogue(candidate.problem) else ("bias", "residual", "z")
