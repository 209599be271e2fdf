"""The kernels of products with band matrices, and what they are told about one problem."""

from __future__ import annotations

from convwright.backends.triton.banded_gemm.forward import forward_of
from convwright.backends.triton.banded_gemm.offers import band_constants, constants
from convwright.backends.triton.banded_gemm.tiles import Tile
from convwright.backends.triton.launching.kernel_call import KernelCall
from convwright.core.candidate import Candidate
from convwright.core.direction import Direction

_BAND_WARPS = 4


def kernel_calls(candidate: Candidate) -> tuple[KernelCall, KernelCall]:
    """What the driver is asked to launch for ``candidate``: the products, and what lays the bands."""
    from convwright.backends.triton.banded_gemm.kernel import banded_gemm, bands

    problem, tile = forward_of(candidate.problem), Tile.of(candidate)
    dtype, nbytes = problem.dtype.value, problem.dtype.nbytes
    any_place, packed = (dtype, nbytes), (dtype, 16)
    x, y = ((dtype, spec.alignment) for spec in (problem.x, problem.y))
    pointers = {"x": x, "packed": packed, "bias": any_place, "residual": y, "y": y}
    told: dict[str, object] = {**constants(problem, tile)}
    if candidate.problem.direction is Direction.BACKWARD_DATA:
        for absent in ("bias", "residual"):
            del pointers[absent]
            told[absent] = None
    programs = tile.programs(problem) * problem.k
    products = KernelCall(banded_gemm, pointers, told, programs, tile.warps, tile.stages)
    laid = KernelCall(
        bands, {"w": any_place, "packed": packed}, band_constants(problem, tile), tile.bands(problem) * problem.k,
        _BAND_WARPS, 1,
    )  # fmt: skip
    return products, laid
