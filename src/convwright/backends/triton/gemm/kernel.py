"""What the kernels of matrix products have in common."""
# mypy: disable-error-code="no-untyped-def,untyped-decorator"

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def outer(rows, columns, TURNED: tl.constexpr):
    """Sums of all pairs, a row for each of ``rows``; TURNED has a column for each, along which threads lie."""
    return rows[None, :] + columns[:, None] if TURNED else rows[:, None] + columns[None, :]


@triton.jit
def pixels_by_channels(pixels, channels, WIDTH: tl.constexpr, APART: tl.constexpr, TURNED: tl.constexpr):
    """The same for offsets of pixels, in rows of WIDTH and so far APART, and of channels. Of an odd width the compiler
    does not see that neighbours lie side by side, and would have threads lie along the channels. Being told so does not
    make it read two at once: of the first of them it does not know that it lies at an even place."""
    if TURNED and APART == 1 and WIDTH > 1 and WIDTH % 2 == 1:
        # Not of what `outer` gives: what is said of a call's result is lost.
        at = tl.max_contiguous(pixels[None, :] + channels[:, None], [1, 2])
    else:
        at = outer(pixels, channels, TURNED)
    return at


@triton.jit
def any_of(flags):
    """Whether one of a tile's is set."""
    return tl.max(tl.max(flags.to(tl.int32), axis=1), axis=0) > 0


@triton.jit
def step_added(total, left, right, APART: tl.constexpr):
    """``total`` and the product of two tiles, which tensor cores sum from zero in APART, added in fp32: what they keep
    too few bits of is never longer than one step."""
    DTYPE: tl.constexpr = tl.float16 if APART == "fp16" else tl.float32
    # Told of no bound, or of a larger one, some architectures would add the step to the running sum after all.
    step = tl.dot(left, right, out_dtype=DTYPE, max_num_imprecise_acc=left.shape[1])
    return total + step.to(tl.float32)


_INTERPRETED = tl.constexpr(bool(triton.knobs.runtime.interpret))


@triton.jit
def products_done(step):
    """Wait until tensor cores are done with all that they were given; ``step`` is any number. Where a left operand
    comes from shared memory to registers, Triton 3.6 lets them read these on while the next one is loaded to the same
    registers: some sums came out wrong (sm_90)."""
    if not _INTERPRETED:
        tl.inline_asm_elementwise(
            "wgmma.wait_group.sync.aligned 0; mov.b32 $0, $1;", "=r,r", [step], dtype=tl.int32, is_pure=False, pack=1
        )


@triton.jit
def stored_as(total, dtype: tl.constexpr):
    """``total`` as an output holds it; int8 has the nearest integer, and of what it cannot hold the nearest it can."""
    if dtype == tl.int8:
        total = tl.where(total < -128.0, -128.0, tl.where(total > 127.0, 127.0, total))
        # Beside 1.5 * 2^23 fp32 has no room for a fraction, and rounds it to even, as PyTorch does.
        total = (total + 12582912.0) - 12582912.0
    return total.to(dtype)
