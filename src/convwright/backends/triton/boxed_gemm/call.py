"""The kernel of products of boxes, and what it is told about one problem."""

from __future__ import annotations

from convwright.backends.triton.boxed_gemm.offers import constants, maps
from convwright.backends.triton.boxed_gemm.tiles import Tile
from convwright.backends.triton.launching.kernel_call import KernelCall
from convwright.core.candidate import Candidate


def kernel_calls(candidate: Candidate) -> tuple[KernelCall, ...]:
    """What the driver is asked to launch for ``candidate``."""
    from convwright.backends.triton.boxed_gemm.kernel import boxed_gemm

    problem, tile = candidate.problem, Tile.of(candidate)
    x, w, y = ((spec.dtype.value, spec.alignment) for spec in (problem.x, problem.w, problem.y))
    bias = (problem.dtype.added.value, problem.dtype.added.nbytes)
    return (
        KernelCall(
            boxed_gemm, {"x": x, "w": w, "bias": bias, "residual": y, "y": y}, constants(problem, tile),
            tile.programs, tile.warps, tile.stages, maps=maps(problem, tile),
        ),
    )  # fmt: skip
