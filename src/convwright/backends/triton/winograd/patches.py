"""The patches of 2x2 output pixels that Winograd's transforms take an image apart into, and what they take."""

from __future__ import annotations

from convwright.core.problem import ConvProblem

POINTS = 16  # of a patch, each of which is a product of its own
_CHANNELS = 4  # that are read at once


def rows_and_columns(problem: ConvProblem) -> tuple[int, int]:
    """Of patches in an image, where the last of them may reach beyond it."""
    rows, columns = (-(-size // 2) for size in problem.y.shape[2:])
    return rows, columns


def patch_count(problem: ConvProblem) -> int:
    """Of the whole batch."""
    rows, columns = rows_and_columns(problem)
    return problem.n * rows * columns


def pitch(problem: ConvProblem) -> int:
    """Input channels of a point, padded with zeros."""
    return -(-problem.c // _CHANNELS) * _CHANNELS


def points_bytes(problem: ConvProblem) -> int:
    """What the transformed input takes."""
    return POINTS * patch_count(problem) * pitch(problem) * 4


def prepared_numbers(problem: ConvProblem) -> int:
    """Most that a prepared weight has: both parts of the transformed one, and the weight itself."""
    return problem.k * (2 * POINTS * pitch(problem) + 9 * problem.c)


def products(problem: ConvProblem) -> int:
    """Multiplications of the products. Patches are counted whole; the transforms are not counted."""
    return POINTS * patch_count(problem) * problem.c * problem.k
