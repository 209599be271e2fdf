"""The kernel: a weight gradient as one matrix product whose operands are loaded in boxes.

Rows are input channels, columns are output channels, and the sum runs over boxes of output pixels. The input of a tap
is the same box at an offset (see `boxed_gemm`), so threads compute no addresses. Each tap is a separate product. The
sum is long and the product small, so the sum is divided into parts, each with its own programs.
"""
# mypy: disable-error-code="no-untyped-def,untyped-decorator"

from __future__ import annotations

import triton
import triton.language as tl

from convwright.backends.triton.boxes.kernel import first_of_box
from convwright.backends.triton.gemm.kernel import products_done
from convwright.backends.triton.launching.overlap import wait_for_the_kernel_ahead


@triton.jit
def _within(
    left, z, p, q, Z: tl.constexpr, P: tl.constexpr, Q: tl.constexpr,
    PLANES: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr, BESIDE_D: tl.constexpr,
):  # fmt: skip
    """A box of the input, with zeros for pixels outside the output: a gradient of 0 times an infinity would be NaN."""
    pixel = tl.arange(0, left.shape[0])
    within = (q + pixel % COLUMNS < Q) & (p + pixel // COLUMNS % ROWS < P)
    if BESIDE_D:
        within = within & (z + pixel // (COLUMNS * ROWS) % PLANES < Z)
    return tl.where(within[:, None], left, 0.0)


# fmt: off
@triton.jit
def boxed_weight_gradient(
    x, dy, sums,
    Z: tl.constexpr, P: tl.constexpr, Q: tl.constexpr, C: tl.constexpr, K: tl.constexpr,
    T: tl.constexpr, R: tl.constexpr, S: tl.constexpr,
    STRIDE_D: tl.constexpr, STRIDE_H: tl.constexpr, STRIDE_W: tl.constexpr,
    DILATION_D: tl.constexpr, DILATION_H: tl.constexpr, DILATION_W: tl.constexpr,
    FRONT: tl.constexpr, TOP: tl.constexpr, LEFT: tl.constexpr, DEEP: tl.constexpr,
    IMAGES: tl.constexpr, PLANES: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr, BOXES: tl.constexpr,
    BESIDE_D: tl.constexpr, BESIDE_H: tl.constexpr, BESIDE_W: tl.constexpr,
    PARTS: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, OVERLAPS: tl.constexpr,
):
    # fmt: on
    """sums = the gradient in fp32, as PARTS K T R S C. The copy engine's descriptors have images as N D H W C (N H W C
    unless DEEP). A step of a sum is IMAGES by PLANES by ROWS by COLUMNS pixels. BESIDE_* say whether pixels outside the
    output would read the input."""
    wait_for_the_kernel_ahead(OVERLAPS)
    PIXELS: tl.constexpr = IMAGES * PLANES * ROWS * COLUMNS
    STEPS: tl.constexpr = (BOXES + PARTS - 1) // PARTS
    TAPS: tl.constexpr = T * R * S
    BESIDE: tl.constexpr = BESIDE_D or BESIDE_H or BESIDE_W
    TILES_C: tl.constexpr = (C + BM - 1) // BM
    TILES_K: tl.constexpr = (K + BN - 1) // BN

    # All programs of one part read the same pixels, which stay in the cache.
    program = tl.program_id(0)
    part = program // (TAPS * TILES_C * TILES_K)
    tap = program // (TILES_C * TILES_K) % TAPS
    c = program // TILES_K % TILES_C * BM
    k = program % TILES_K * BN
    d_tap = tap // (R * S) * DILATION_D - FRONT
    h_tap = tap // S % R * DILATION_H - TOP
    v_tap = tap % S * DILATION_W - LEFT

    total = tl.zeros((BM, BN), tl.float32)
    for step in tl.range(STEPS):
        if BESIDE or IMAGES * PLANES * ROWS > 1:  # else a box in shared memory already has the layout for tensor cores
            products_done(step)
        # After the last box there are no images, and zeros are read.
        box = part * STEPS + step
        n, z, p, q = first_of_box(box, Z, P, Q, IMAGES, PLANES, ROWS, COLUMNS)
        h = p * STRIDE_H + h_tap
        v = q * STRIDE_W + v_tap
        if DEEP:
            left = x.load([n, z * STRIDE_D + d_tap, h, v, c]).reshape(PIXELS, BM)
            right = dy.load([n, z, p, q, k]).reshape(PIXELS, BN)
        else:
            left = x.load([n, h, v, c]).reshape(PIXELS, BM)
            right = dy.load([n, p, q, k]).reshape(PIXELS, BN)
        if BESIDE:
            left = _within(left, z, p, q, Z, P, Q, PLANES, ROWS, COLUMNS, BESIDE_D)
        total = tl.dot(left.T, right, total)

    c_row = c + tl.arange(0, BM)
    k_column = k + tl.arange(0, BN)
    at = sums + part.to(tl.int64) * (K * TAPS * C) + tap * C
    kept = (c_row < C)[:, None] & (k_column < K)[None, :]
    tl.store(at + (c_row[:, None] + (k_column * (TAPS * C))[None, :]), total, mask=kept)
