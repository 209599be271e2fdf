"""The kernel: a forward convolution as one matrix product whose operands are loaded in boxes.

A box is a part of the images: some images by planes by rows by columns by channels. One instruction of the copy engine
loads it to shared memory, with zeros outside an image. The pixels of a tile form a box, and each tap reads this box at
an offset. So threads compute no addresses and no masks, and their registers are free for the sums. The output is stored
in boxes if its channels fill multiples of 16 bytes, and by addresses otherwise. Rows of the product are output
channels, columns are pixels: tensor cores take a transposed right operand from shared memory, but not a transposed left
one. The grid has as many programs as the device holds at a time; each loads the operands of its next tile while it
stores the current one.
"""
# mypy: disable-error-code="no-untyped-def,untyped-decorator"

from __future__ import annotations

import triton
import triton.language as tl

from convwright.backends.triton.activation import activated
from convwright.backends.triton.boxes.kernel import first_of_box, pixels_of_box
from convwright.backends.triton.launching.overlap import wait_for_the_kernel_ahead


# fmt: off
@triton.jit
def boxed_gemm(
    x, w, bias, residual, y,
    Z: tl.constexpr, P: tl.constexpr, Q: tl.constexpr, C: tl.constexpr, K: tl.constexpr,
    T: tl.constexpr, R: tl.constexpr, S: tl.constexpr,
    STRIDE_D: tl.constexpr, STRIDE_H: tl.constexpr, STRIDE_W: tl.constexpr,
    DILATION_D: tl.constexpr, DILATION_H: tl.constexpr, DILATION_W: tl.constexpr,
    FRONT: tl.constexpr, TOP: tl.constexpr, LEFT: tl.constexpr, FLIP: tl.constexpr, DEEP: tl.constexpr,
    BIAS: tl.constexpr, RESIDUAL: tl.constexpr, ACTIVATION: tl.constexpr,
    IMAGES: tl.constexpr, PLANES: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr, BOXES: tl.constexpr,
    WRITES_BOXES: tl.constexpr, N: tl.constexpr,
    Y_N: tl.constexpr, Y_D: tl.constexpr, Y_H: tl.constexpr, Y_W: tl.constexpr,
    BN: tl.constexpr, BK: tl.constexpr, GROUP_M: tl.constexpr, PROGRAMS: tl.constexpr, OVERLAPS: tl.constexpr,
):
    # fmt: on
    """y = activation(conv(x, w) + residual + bias). The copy engine's descriptors have images as N D H W C (N H W C
    unless DEEP) and the weight as taps by K by C; FLIP mirrors the taps.

    A tile has IMAGES by PLANES by ROWS by COLUMNS pixels and BN channels. A step of its sum is BK channels of one tap.
    BOXES is the number of boxes that cover the output. Unless WRITES_BOXES, residual and output are pointers, for N
    images.
    """
    wait_for_the_kernel_ahead(OVERLAPS)
    PIXELS: tl.constexpr = IMAGES * PLANES * ROWS * COLUMNS
    TILES_K: tl.constexpr = (K + BN - 1) // BN
    TAPS: tl.constexpr = T * R * S
    BLOCKS: tl.constexpr = (C + BK - 1) // BK

    for tile in tl.range(tl.program_id(0), BOXES * TILES_K, PROGRAMS, flatten=True):
        # Neighbouring programs share GROUP_M boxes of pixels, which stay in the cache.
        group = tile // (GROUP_M * TILES_K)
        within = tile % (GROUP_M * TILES_K)
        beside = min(BOXES - group * GROUP_M, GROUP_M)
        m = group * GROUP_M + within % beside
        k = within // beside * BN
        n, z, p, q = first_of_box(m, Z, P, Q, IMAGES, PLANES, ROWS, COLUMNS)

        total = tl.zeros((BN, PIXELS), tl.float32)
        for step in tl.range(TAPS * BLOCKS):
            tap = step // BLOCKS
            c = step % BLOCKS * BK
            h = p * STRIDE_H - TOP + tap // S % R * DILATION_H
            v = q * STRIDE_W - LEFT + tap % S * DILATION_W
            left = w.load([TAPS - 1 - tap if FLIP else tap, k, c]).reshape(BN, BK)
            if DEEP:
                d = z * STRIDE_D - FRONT + tap // (R * S) * DILATION_D
                right = x.load([n, d, h, v, c]).reshape(PIXELS, BK)
            else:
                right = x.load([n, h, v, c]).reshape(PIXELS, BK)
            total = tl.dot(left, right.T, total)

        channel = k + tl.arange(0, BN)
        if not WRITES_BOXES:
            at, inside = pixels_of_box(n, z, p, q, N, Z, P, Q, Y_N, Y_D, Y_H, Y_W, IMAGES, PLANES, ROWS, COLUMNS)
            at = at[:, None] + channel[None, :]
            kept = inside[:, None] & (channel < K)[None, :]
        if BIAS:
            total += tl.load(bias + channel, mask=channel < K, other=0.0).to(tl.float32)[:, None]
        if RESIDUAL:
            if not WRITES_BOXES:
                added = tl.load(residual + at, mask=kept, other=0.0)
            elif DEEP:
                added = residual.load([n, z, p, q, k])
            else:
                added = residual.load([n, p, q, k])
            total += added.reshape(PIXELS, BN).T.to(tl.float32)
        total = activated(total, ACTIVATION, w.dtype).to(w.dtype).T
        if not WRITES_BOXES:
            tl.store(y + at, total, mask=kept)
        elif DEEP:
            y.store([n, z, p, q, k], total.reshape(IMAGES, PLANES, ROWS, COLUMNS, BN))
        else:
            y.store([n, p, q, k], total.reshape(IMAGES, ROWS, COLUMNS, BN))
