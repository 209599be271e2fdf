"""Resizing: supported problems, tiles, launches."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import prod

from convwright.backends.triton.by_role.served import MOST_PROGRAMS, offered, why_not_served
from convwright.backends.triton.by_role.tile import RoleTile
from convwright.backends.triton.launching.kernel_call import KernelCall, interpreting
from convwright.backends.triton.operands import depth, moves, offsets_are_wide, pair, power_of_two
from convwright.core.candidate import Candidate, Offer, Refusal
from convwright.core.device import DeviceFacts
from convwright.core.kinds.resize import Interpolation, ResizeProblem

ALGORITHM = "resize"
NAME = f"triton/{ALGORITHM}"
# Positions up to here, and their halves, are exact in fp32.
_MOST_PIXELS = 2**23
_WARPS = 4
# Elements of a tile, and the most and fewest contiguous ones.
_AREAS = (1024, 2048, 512)
_MOST_COLUMNS, _FEWEST_COLUMNS = 512, 32
# Not measured yet; only orders tiles.
_LEAST_US, _TIMES = 2.0, 1.2


@dataclass(frozen=True, slots=True)
class Tile(RoleTile):
    """The part of an output that one program computes: ``rows`` of ``columns`` adjacent elements."""

    def programs(self, problem: ResizeProblem) -> int:
        """The number of tiles that cover the output."""
        columns = _size(problem, inner(problem))
        return -(-(problem.y.numel // columns) // self.rows) * -(-columns // self.columns)


def offers(problem: ResizeProblem, device: DeviceFacts) -> Iterator[Offer]:
    """Every tile worth trying, or the reason why none supports the problem."""
    reason = refusal_reason(problem)
    if reason is not None:
        yield Refusal(NAME, reason)
        return
    for tile in tiles(problem):
        if tile.programs(problem) <= MOST_PROGRAMS:
            yield offered(problem, ALGORITHM, tile.config, _estimated_us(problem, tile, device))


def refusal_reason(problem: ResizeProblem) -> str | None:
    """Why the kernel cannot compute ``problem``; None if it can."""
    for name, spec in problem.operands.items():
        if max(spec.shape[2:]) >= _MOST_PIXELS:
            return f"needs fewer than 2^23 pixels along a dimension, got {max(spec.shape[2:]):,} of `{name}`"
    rounded = [problem.dtype] if problem.interpolation is Interpolation.LINEAR else []
    return why_not_served(problem, computed=[problem.dtype], rounded=rounded)


def inner(problem: ResizeProblem) -> int:
    """The output's densest dimension, of images, channels, depth, height and width."""
    dims = [(stride, -dim) for dim, (size, stride) in enumerate(_steps(problem)) if size > 1]
    return -min(dims)[1] if dims else 4


def _size(problem: ResizeProblem, dim: int) -> int:
    return _steps(problem)[dim][0]


def _steps(problem: ResizeProblem) -> tuple[tuple[int, int], ...]:
    """Sizes and strides of the output as a 3-D image."""
    (n, c, *sizes), (y_n, y_c, *strides) = problem.y.shape, problem.y.strides
    missing = 3 - len(sizes)
    volume = zip((*(1,) * missing, *sizes), (*(0,) * missing, *strides), strict=True)
    return ((n, y_n), (c, y_c), *volume)


def tiles(problem: ResizeProblem) -> list[Tile]:
    """The few tiles that are worth trying, the most promising first, with little waste at the end."""
    size = _size(problem, inner(problem))
    most = min(power_of_two(size), _MOST_COLUMNS)
    widths = [most >> halved for halved in range(most.bit_length()) if most >> halved >= _FEWEST_COLUMNS] or [most]
    tightest = min(widths, key=lambda width: (-(-size // width) * width, -width))
    rows = power_of_two(problem.y.numel // size)
    found = [
        Tile(min(max(area // width, 1), rows), width, _WARPS) for width in (tightest, widths[0]) for area in _AREAS
    ]
    return list(dict.fromkeys(found))


def _estimated_us(problem: ResizeProblem, tile: Tile, device: DeviceFacts) -> float | None:
    if not device.bandwidth_bytes_per_us:
        return None
    computed = tile.programs(problem) * tile.rows * tile.columns / problem.y.numel
    return _LEAST_US + _TIMES * computed * problem.bytes / device.bandwidth_bytes_per_us


def kernel_call(candidate: Candidate) -> KernelCall:
    """The kernel to launch."""
    from convwright.backends.triton.resize.kernel import resized

    problem, tile = candidate.problem, Tile.of(candidate)
    pointers = {
        name: (spec.dtype, max(spec.alignment, spec.dtype.nbytes)) for name, spec in problem.operands.items()
    }  # fmt: skip
    return KernelCall(resized, pointers, constants(problem, tile), tile.programs(problem), tile.warps, 1)


def constants(problem: ResizeProblem, tile: Tile) -> dict[str, object]:
    """Sizes, strides and steps for the kernel. Fewer than three spatial dimensions are the last ones."""
    dim = inner(problem)
    columns = _size(problem, dim)
    rows = problem.y.numel // columns
    (H, W), (P, Q) = (pair(spec.shape[2:], 1) for spec in (problem.x, problem.y))
    (x_n, x_c, *x_strides), (y_n, y_c, *y_strides) = map(moves, (problem.x, problem.y))
    (x_h, x_w), (y_p, y_q) = (pair(tuple(strides), 0) for strides in (x_strides, y_strides))
    step_d, step_h, step_w = (*(0.0,) * (3 - len(problem.steps)), *problem.steps)
    return {
        "ROW_COUNT": rows if rows % tile.rows else 0, "COLUMN_COUNT": columns, "INNER": dim,
        "C": problem.y.shape[1], "Z": depth(problem.y.shape[2:], 1), "P": P, "Q": Q,
        "D": depth(problem.x.shape[2:], 1), "H": H, "W": W,
        "X_N": x_n, "X_C": x_c, "X_D": depth(tuple(x_strides), 0), "X_H": x_h, "X_W": x_w,
        "Y_N": y_n, "Y_C": y_c, "Y_Z": depth(tuple(y_strides), 0), "Y_P": y_p, "Y_Q": y_q,
        "STEP_D": step_d, "STEP_H": step_h, "STEP_W": step_w, "SHIFT": problem.shift,
        "RANK": len(problem.steps), "NEAREST": problem.interpolation is Interpolation.NEAREST,
        "FUSED": not interpreting(),
        "WIDE": offsets_are_wide(problem.x, problem.y) or prod(problem.y.shape) >= 2**30,
        "ROWS": tile.rows, "COLUMNS": tile.columns,
    }  # fmt: skip
