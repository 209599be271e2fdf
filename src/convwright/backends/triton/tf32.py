"""Products of fp32 numbers by TF32 tensor cores, as Triton kernels compute them."""
# mypy: disable-error-code="no-untyped-def,no-untyped-call,untyped-decorator"

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def tf32_parts(value):
    """Two TF32 numbers whose sum is ``value`` to 22 bits or more; the low one is NaN where ``value`` is not finite."""
    # The high part is rounded, not truncated: truncation would give all low parts one sign, and the neglected product
    # of low parts would be a bias.
    high = _rounded(value.to(tl.int32, bitcast=True)).to(tl.float32, bitcast=True)
    return high, value - high


@triton.jit
def tf32(value):
    """The nearest TF32 number. Tensor cores themselves truncate, with 2.7 times the error."""
    bits = value.to(tl.int32, bitcast=True)
    # Rounding could turn a NaN into a zero.
    return tl.where(_is_finite(bits), _rounded(bits), bits).to(tl.float32, bitcast=True)


@triton.jit
def _rounded(bits):
    """Rounded by half a unit of the last kept place; truncated if the result would be an infinity."""
    rounded = (bits + 0x1000) & -0x2000
    return tl.where(_is_finite(rounded), rounded, bits & -0x2000)


@triton.jit
def _is_finite(bits):
    return (bits & 0x7F800000) != 0x7F800000


@triton.jit
def dot_3xtf32(left, right_high, right_low, EXACT: tl.constexpr):
    """The product of fp32 tiles by three TF32 products, small ones first, summed from zero; by all four if EXACT."""
    left_high, left_low = tf32_parts(left)
    total = tl.dot(left_low, right_high, input_precision="tf32")
    if EXACT:
        total = tl.dot(left_low, right_low, total, input_precision="tf32")
    total = tl.dot(left_high, right_low, total, input_precision="tf32")
    return tl.dot(left_high, right_high, total, input_precision="tf32")


@triton.jit
def product_added(total, left, right, right_low, SPLIT: tl.constexpr, PACKED: tl.constexpr, EXACT: tl.constexpr):
    """``total`` plus the product of two tiles in fp32. SPLIT computes fp32 by three TF32 products. If ``right`` is
    PACKED, it is already rounded to TF32, and with SPLIT ``right_low`` is the remainder."""
    # Tensor cores truncate what they add to a running sum, so a long sum drifts. In 3xTF32 they sum one step from zero,
    # and the steps are added in fp32, which rounds.
    if SPLIT and PACKED:
        total += dot_3xtf32(left, right, right_low, EXACT)
    elif SPLIT:
        right_high, right_low = tf32_parts(right)
        total += dot_3xtf32(left, right_high, right_low, EXACT)
    elif left.dtype == tl.float32 and PACKED:
        # Separate from the sum as well. The bound applies to fp8 only, but makes the compiler keep both apart.
        # Otherwise, if the sum is not used in the loop, tensor cores may still add to it while the next step's left
        # operand is written to the registers that they read (Triton 3.6, sm_90).
        total += tl.dot(tf32(left), right, input_precision="tf32", max_num_imprecise_acc=left.shape[1])
    elif left.dtype == tl.float32:
        total = tl.dot(tf32(left), tf32(right), total, input_precision="tf32")
    else:
        total = tl.dot(left, right, total)
    return total
