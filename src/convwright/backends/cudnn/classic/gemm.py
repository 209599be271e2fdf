"""Upper bounds for the workspace of cuDNN's matrix products. The rules do not predict which kernel cuDNN chooses.

Kernels of strict fp32 and fp64 may copy operands into another layout with padded channels; they also keep indices in
`_TABLES_BYTES`. Tensor-core kernels also split sums among blocks and add the parts. These parts take from nothing to
gigabytes, by no rule that the records show; `planned` has the bounds that cuDNN's planner gives.
"""

from __future__ import annotations

from math import prod

from convwright.backends.cudnn.classic.classic_problem import ClassicProblem, copied, rounded_up
from convwright.core.dtype import Arithmetic, DType
from convwright.core.tensor_spec import Layout

_TABLES_BYTES = 1 << 18
# With at most this many channels in and out of a group, no recorded fp64 kernel splits sums.
_FP64_CHANNELS = 512, 256
_STRICT = (Arithmetic.FP32, Arithmetic.FP64)


def no_bytes(given: ClassicProblem) -> int:
    return 0


def precomputed_bytes(given: ClassicProblem) -> int | None:
    """For the forward algorithm with precomputed indices."""
    if given.arithmetic not in _STRICT:
        return None
    if given.arithmetic is Arithmetic.FP64:
        return _precomputed_fp64_bytes(given)
    if given.layout is Layout.NHWC:
        return given.operand_bytes(8) + _TABLES_BYTES
    indices = rounded_up(given.k * 4, 1024)
    if given.groups == 1 and given.x_is_dense and given.y_is_dense:
        return indices
    return given.groups * (indices + copied(given.x_bytes(8)) + copied(given.y_bytes(8)) + 32)


def _precomputed_fp64_bytes(given: ClassicProblem) -> int:
    splits_no_sums = given.rank == 3 or (given.c <= _FP64_CHANNELS[0] and given.k <= _FP64_CHANNELS[1])
    if given.layout is Layout.NCHW:
        return 0 if splits_no_sums else _TABLES_BYTES
    if given.groups == 1 and splits_no_sums:
        return copied(given.w_bytes()) if prod(given.taps) > 1 else 0
    return given.operand_bytes() + 2 * _TABLES_BYTES


def backward_data_bytes(given: ClassicProblem) -> int | None:
    """For the deterministic algorithm."""
    if given.arithmetic not in _STRICT:
        return None
    if given.layout is Layout.NHWC:
        return _channels_last_backward_data_bytes(given)
    if given.groups == 1 or given.arithmetic is Arithmetic.FP64:
        return 0 if given.x_is_dense else copied(given.groups * given.x_bytes())
    return given.groups * (given.x_bytes(8) + given.y_bytes(8)) + 64


def _channels_last_backward_data_bytes(given: ClassicProblem) -> int:
    """With one tap or one channel a weight has the same memory order in both layouts and is not copied."""
    if given.groups > 1:
        return given.operand_bytes() + _TABLES_BYTES
    weight = given.w_bytes() if prod(given.taps) > 1 else 0
    return copied(given.x_bytes() + given.y_bytes() + weight)


def backward_weight_bytes(given: ClassicProblem) -> int | None:
    """For the deterministic algorithm."""
    if given.arithmetic not in _STRICT:
        return None
    if given.arithmetic is Arithmetic.FP64 and given.rank == 3:
        return 0
    return given.operand_bytes(_channel_padding(given)) + _index_bytes(given) + _TABLES_BYTES


def _index_bytes(given: ClassicProblem) -> int:
    """One index for each element of an unrolled column."""
    return given.c * prod(given.taps) * 4


def atomic_backward_weight_bytes(given: ClassicProblem) -> int:
    """For the algorithm with precomputed indices and atomic additions. 16-bit results are added in 32 bits."""
    if given.problem.dtype is DType.FP64:
        return 0 if given.rank == 3 else given.operand_bytes() + _TABLES_BYTES
    sums = given.groups * given.w_bytes(8)
    return given.operand_bytes(8) + sums + _index_bytes(given) + 4 * _TABLES_BYTES


def unrolled_bytes(given: ClassicProblem) -> int:
    """For the explicit matrix product: the unrolled input of all concurrent groups, or nothing."""
    if _needs_no_unrolling(given):
        return 0
    at_once = min(given.groups, 2 if given.problem.dtype is DType.FP64 else 4)
    unrolled = given.n * given.c * prod(given.taps) * prod(given.y) * given.itemsize
    result = 0 if given.y_is_dense else given.groups * copied(given.y_bytes())
    return at_once * (unrolled if given.groups == 1 else rounded_up(unrolled)) + result


def _needs_no_unrolling(given: ClassicProblem) -> bool:
    """True where every recorded kernel unrolls on the fly: in fp32 and fp64, for few output channels."""
    return given.itemsize >= DType.FP32.nbytes and given.k <= 64 and prod(given.taps) > 1


def _channel_padding(given: ClassicProblem) -> int:
    return 1 if given.arithmetic is Arithmetic.FP64 else 8
