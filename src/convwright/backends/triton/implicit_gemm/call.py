"""The implicit GEMM's kernel, and what it is told about one problem."""

from __future__ import annotations

from convwright.backends.triton.implicit_gemm.offers import algorithm_of, blocks, constants
from convwright.backends.triton.implicit_gemm.tiles import Tile
from convwright.backends.triton.kernel_call import KernelCall
from convwright.core.candidate import Candidate


def kernel_calls(candidate: Candidate) -> tuple[KernelCall]:
    """What the driver is asked to launch for ``candidate``."""
    from convwright.backends.triton.implicit_gemm.kernel import implicit_gemm

    problem, tile = candidate.problem, Tile.of(candidate)
    # The residual lies as the output does; of the bias, whose loads are few, nothing is assumed.
    alignment = {
        "x": problem.x.alignment, "w": problem.w.alignment, "bias": problem.dtype.nbytes,
        "residual": problem.y.alignment, "y": problem.y.alignment,
    }  # fmt: skip
    pointers = {name: (problem.dtype.value, nbytes) for name, nbytes in alignment.items()}
    told = constants(problem, algorithm_of(candidate), tile)
    return (KernelCall(implicit_gemm, pointers, told, blocks(problem, tile), tile.warps, tile.stages, tile.regs),)
