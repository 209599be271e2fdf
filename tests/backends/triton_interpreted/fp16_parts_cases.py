"""Numbers that try products of fp16 parts, and how near their sums have to be, in the interpreter and on a GPU."""

from __future__ import annotations

from math import inf, nan

import torch
from torch import Tensor

from convwright.core.dtype import Arithmetic

# Of a sum in the norm; one fp16 number beside a shared power of two errs as TF32 does.
LARGEST_ERROR = {
    Arithmetic.FP16X3: 5e-7,
    Arithmetic.SCALED_FP16: 5e-4,
    Arithmetic.FP16_ACC32: 6e-4,
    Arithmetic.BF16_ACC32: 5e-3,
}
# Of a single sum of products of one sign, where both operands and the result may be rounded the same way.
LARGEST_OF_ONE_SIGN = {Arithmetic.FP16X3: 1e-6, Arithmetic.SCALED_FP16: 1.5e-3}
# Infinities of both signs, PyTorch's NaN and CUDA's.
NON_FINITE_BITS = (0x7F800000, 0xFF800000, 0x7FC00000, 0x7FFFFFFF)
# Beside an infinity a number so small that fp16 has none like it is still no 0.
BESIDE_AN_INFINITY = (1e-30, -1e-30, 1e-44, 0.0, -0.0, 3.0, inf, -inf, nan, 1.0)


def number(bits: int) -> Tensor:
    """That which fp32 stores so."""
    return torch.tensor(bits, dtype=torch.uint32).view(torch.float32)


def lies_as_ieee_says(y: Tensor, expected: Tensor, arithmetic: Arithmetic) -> bool:
    """Infinities and NaNs where ``expected`` has them, some numbers among them, all of order 1 and near."""
    bound = 1e-5 if arithmetic is Arithmetic.FP16X3 else 5e-2
    wanted = expected.to(y.dtype)
    assert wanted.isfinite().any()
    assert not wanted.isfinite().all()
    return torch.allclose(y, wanted, rtol=bound, atol=bound, equal_nan=True)


def each_is_near(y: Tensor, expected: Tensor, arithmetic: Arithmetic) -> bool:
    """Every sum of products of one sign, where fp32 has its full precision."""
    normal = (expected.abs() > 1e-37) & (expected.abs() < 3e38)
    assert normal.any()
    largest = LARGEST_OF_ONE_SIGN[arithmetic]
    return bool(((y.double() - expected).abs() <= largest * expected.abs())[normal].all())


def of_one_sign(*operands: Tensor) -> None:
    """Make them numbers of one magnitude too, so that each sum has full precision."""
    for operand in operands:
        operand.abs_().add_(0.25)
