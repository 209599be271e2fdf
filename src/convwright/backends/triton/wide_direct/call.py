"""The kernel whose threads compute patches, and what it is told about one problem."""

from __future__ import annotations

from convwright.backends.triton.direct.call import absent_pointers
from convwright.backends.triton.launching.kernel_call import KernelCall
from convwright.backends.triton.sweep import sweep_of
from convwright.backends.triton.wide_direct.offers import constants
from convwright.backends.triton.wide_direct.reading import columns_at_once
from convwright.backends.triton.wide_direct.tiles import Patch
from convwright.core.candidate import Candidate


def kernel_calls(candidate: Candidate) -> tuple[KernelCall]:
    """What the driver is asked to launch for ``candidate``."""
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
    told = constants(problem, patch) | dict.fromkeys(absent)
    named = {name: (problem.dtype.value, alignment) for name, alignment in pointers.items() if name not in absent}
    return (KernelCall(wide_direct, named, told, patch.blocks(sweep), patch.warps, 1),)
