"""The kernels that sum up taps first, and what they are told about one problem."""

from __future__ import annotations

from math import prod

from convwright.backends.triton.direct.call import absent_pointers
from convwright.backends.triton.launching.kernel_call import WORKSPACE, KernelCall
from convwright.backends.triton.sweep import sweep_of
from convwright.backends.triton.taps_first.offers import constants_of_outputs, constants_of_sums
from convwright.backends.triton.taps_first.tiles import Tile
from convwright.core.candidate import Candidate

_BLOCK, _WARPS = 256, 4  # of the kernel that adds up taps


def kernel_calls(candidate: Candidate) -> tuple[KernelCall, KernelCall]:
    """What the driver is asked to launch for ``candidate``: the sums of each tap, and the outputs."""
    from convwright.backends.triton.taps_first.kernel import outputs_of_taps, sums_of_taps

    problem, tile = candidate.problem, Tile.of(candidate)
    sweep, dtype, absent = sweep_of(problem), problem.dtype, absent_pointers(candidate)
    read, single = (dtype.value, sweep.read.alignment), (dtype.value, dtype.nbytes)
    written = (dtype.value, sweep.written.alignment)

    pointers = {"x": read, "w": single, "sums": WORKSPACE, "z": read}
    told = constants_of_sums(problem, tile) | {name: None for name in absent if name in pointers}
    sums = KernelCall(sums_of_taps, _there(pointers, absent), told, tile.blocks(sweep), tile.warps, 1)

    pointers = {"sums": WORKSPACE, "bias": single, "residual": written, "y": written}
    told = constants_of_outputs(problem, tile, _BLOCK) | {name: None for name in absent if name in pointers}
    blocks = problem.n * sweep.written.shape[1] * -(-prod(sweep.written.shape[2:]) // _BLOCK)
    return sums, KernelCall(outputs_of_taps, _there(pointers, absent), told, blocks, _WARPS, 1)


def _there(pointers: dict[str, tuple[str, int]], absent: tuple[str, ...]) -> dict[str, tuple[str, int]]:
    return {name: pointer for name, pointer in pointers.items() if name not in absent}
