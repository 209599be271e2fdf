"""Shared by the kernels of matrix products."""
# mypy: disable-error-code="no-untyped-def,untyped-decorator"

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def outer(rows, columns, TURNED: tl.constexpr):
    """Sums of all pairs, with a row for each of ``rows``, or, if TURNED, a column for each, along which threads are
    laid out."""
    return rows[None, :] + columns[:, None] if TURNED else rows[:, None] + columns[None, :]


@triton.jit
def pixels_by_channels(pixels, channels, WIDTH: tl.constexpr, APART: tl.constexpr, TURNED: tl.constexpr):
    """The same for offsets of pixels, in rows of WIDTH and APART elements apart, and of channels. With an odd width the
    compiler does not see that neighbours are contiguous, and would lay out threads along the channels. This hint does
    not produce vector loads: the compiler does not know that the first of two pixels is at an even offset."""
    if TURNED and APART == 1 and WIDTH > 1 and WIDTH % 2 == 1:
        # Not of the result of `outer`: hints on a call's result are lost.
        at = tl.max_contiguous(pixels[None, :] + channels[:, None], [1, 2])
    else:
        at = outer(pixels, channels, TURNED)
    return at


@triton.jit
def any_of(flags):
    """Whether any flag of a tile is set."""
    return tl.max(tl.max(flags.to(tl.int32), axis=1), axis=0) > 0


@triton.jit
def step_added(total, left, right, APART: tl.constexpr):
    """``total`` plus the product of two tiles. Tensor cores sum the product from zero in APART, and it is added in
    fp32, so that no sum in low precision is longer than one step."""
    DTYPE: tl.constexpr = tl.float16 if APART == "fp16" else tl.float32
    # With no bound or a larger one, some architectures would add the step to the running sum.
    step = tl.dot(left, right, out_dtype=DTYPE, max_num_imprecise_acc=left.shape[1])
    return total + step.to(tl.float32)


_INTERPRETED = tl.constexpr(bool(triton.knobs.runtime.interpret))


@triton.jit
def products_done(step):
    """Wait until tensor cores have finished; ``step`` is any number. If a left operand is loaded from shared memory to
    registers, Triton 3.6 lets tensor cores read these while the next operand is loaded to the same registers, and some
    sums are wrong (sm_90)."""
    if not _INTERPRETED:
        tl.inline_asm_elementwise(
            "wgmma.wait_group.sync.aligned 0; mov.b32 $0, $1;", "=r,r", [step], dtype=tl.int32, is_pure=False, pack=1
        )


@triton.jit
def stored_as(total, dtype: tl.constexpr):
    """``total`` in the output's dtype. For int8 it is rounded to the nearest integer and saturated."""
    if dtype == tl.int8:
        total = tl.where(total < -128.0, -128.0, tl.where(total > 127.0, 127.0, total))
        # Plus 1.5 * 2^23, fp32 has no fraction bits, and rounds to even, as PyTorch does.
        total = (total + 12582912.0) - 12582912.0
    return total.to(dtype)
