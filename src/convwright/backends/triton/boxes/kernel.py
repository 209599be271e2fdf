"""Shared by the kernels with operands in boxes."""
# mypy: disable-error-code="no-untyped-def,untyped-decorator"

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def first_of_box(
    box, Z: tl.constexpr, P: tl.constexpr, Q: tl.constexpr,
    IMAGES: tl.constexpr, PLANES: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    """Image, plane, row and column of the first pixel of a box. Boxes along a row are consecutive."""
    BOXES_Q: tl.constexpr = (Q + COLUMNS - 1) // COLUMNS
    BOXES_P: tl.constexpr = (P + ROWS - 1) // ROWS
    BOXES_Z: tl.constexpr = (Z + PLANES - 1) // PLANES
    q = box % BOXES_Q * COLUMNS
    p = box // BOXES_Q % BOXES_P * ROWS
    z = box // (BOXES_Q * BOXES_P) % BOXES_Z * PLANES
    n = box // (BOXES_Q * BOXES_P * BOXES_Z) * IMAGES
    return n, z, p, q


@triton.jit
def pixels_of_box(
    n, z, p, q, N: tl.constexpr, Z: tl.constexpr, P: tl.constexpr, Q: tl.constexpr,
    Y_N: tl.constexpr, Y_D: tl.constexpr, Y_H: tl.constexpr, Y_W: tl.constexpr,
    IMAGES: tl.constexpr, PLANES: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    """The offsets of the pixels of a box that begins there, and which of them are inside their image."""
    each = tl.arange(0, IMAGES * PLANES * ROWS * COLUMNS)
    column = q + each % COLUMNS
    row = p + each // COLUMNS % ROWS
    plane = z + each // (COLUMNS * ROWS) % PLANES
    image = n + each // (COLUMNS * ROWS * PLANES)
    inside = (image < N) & (plane < Z) & (row < P) & (column < Q)
    return image * Y_N + plane * Y_D + row * Y_H + column * Y_W, inside
