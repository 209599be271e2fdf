"""Upper bounds for the workspace of cuDNN's matrix products. The rules do not predict which kernel cuDNN chooses.

Kernels of strict fp32 and fp64 may copy operands into another layout with padded channels; they also keep indices in
`_TABLES_BYTES`. Tensor-core kernels also split sums among blocks and add the parts. These parts take from nothing to
gigabytes, by no rule that the records show; `planned` has the bounds that cuDNN's planner gives.
"""

from __future__ import annotations

from math import prod

from convwright.backends.cudnn.classic.asked import Asked, copied, rounded_up
from convwright.core.dtype import Arithmetic, DType
from convwright.core.tensor_spec import Layout

_TABLES_BYTES = 1 << 18
# With at most this many channels in and out of a group, no recorded fp64 kernel splits sums.
_FP64_CHANNELS = 512, 256
_STRICT = (Arithmetic.FP32, Arithmetic.FP64)


def no_bytes(asked: Asked) -> int:
    return 0


def precomputed_bytes(asked: Asked) -> int | None:
    """For the forward algorithm with precomputed indices."""
    if asked.arithmetic not in _STRICT:
        return None
    if asked.arithmetic is Arithmetic.FP64:
        return _precomputed_fp64_bytes(asked)
    if asked.layout is Layout.NHWC:
        return asked.operand_bytes(8) + _TABLES_BYTES
    indices = rounded_up(asked.k * 4, 1024)
    if asked.groups == 1 and asked.x_is_dense and asked.y_is_dense:
        return indices
    return asked.groups * (indices + copied(asked.x_bytes(8)) + copied(asked.y_bytes(8)) + 32)


def _precomputed_fp64_bytes(asked: Asked) -> int:
    splits_no_sums = asked.rank == 3 or (asked.c <= _FP64_CHANNELS[0] and asked.k <= _FP64_CHANNELS[1])
    if asked.layout is Layout.NCHW:
        return 0 if splits_no_sums else _TABLES_BYTES
    if asked.groups == 1 and splits_no_sums:
        return copied(asked.w_bytes()) if prod(asked.taps) > 1 else 0
    return asked.operand_bytes() + 2 * _TABLES_BYTES


def backward_data_bytes(asked: Asked) -> int | None:
    """For the deterministic algorithm."""
    if asked.arithmetic not in _STRICT:
        return None
    if asked.layout is Layout.NHWC:
        return _channels_last_backward_data_bytes(asked)
    if asked.groups == 1 or asked.arithmetic is Arithmetic.FP64:
        return 0 if asked.x_is_dense else copied(asked.groups * asked.x_bytes())
    return asked.groups * (asked.x_bytes(8) + asked.y_bytes(8)) + 64


def _channels_last_backward_data_bytes(asked: Asked) -> int:
    """With one tap or one channel a weight has the same memory order in both layouts and is not copied."""
    if asked.groups > 1:
        return asked.operand_bytes() + _TABLES_BYTES
    weight = asked.w_bytes() if prod(asked.taps) > 1 else 0
    return copied(asked.x_bytes() + asked.y_bytes() + weight)


def backward_weight_bytes(asked: Asked) -> int | None:
    """For the deterministic algorithm."""
    if asked.arithmetic not in _STRICT:
        return None
    if asked.arithmetic is Arithmetic.FP64 and asked.rank == 3:
        return 0
    return asked.operand_bytes(_channel_padding(asked)) + _index_bytes(asked) + _TABLES_BYTES


def _index_bytes(asked: Asked) -> int:
    """One index for each element of an unrolled column."""
    return asked.c * prod(asked.taps) * 4


def atomic_backward_weight_bytes(asked: Asked) -> int:
    """For the algorithm with precomputed indices and atomic additions. 16-bit results are added in 32 bits."""
    if asked.problem.dtype is DType.FP64:
        return 0 if asked.rank == 3 else asked.operand_bytes() + _TABLES_BYTES
    sums = asked.groups * asked.w_bytes(8)
    return asked.operand_bytes(8) + sums + _index_bytes(asked) + 4 * _TABLES_BYTES


def unrolled_bytes(asked: Asked) -> int:
    """For the explicit matrix product: the unrolled input of all concurrent groups, or nothing."""
    if _needs_no_unrolling(asked):
        return 0
    at_once = min(asked.groups, 2 if asked.problem.dtype is DType.FP64 else 4)
    unrolled = asked.n * asked.c * prod(asked.taps) * prod(asked.y) * asked.itemsize
    result = 0 if asked.y_is_dense else asked.groups * copied(asked.y_bytes())
    return at_once * (unrolled if asked.groups == 1 else rounded_up(unrolled)) + result


def _needs_no_unrolling(asked: Asked) -> bool:
    """True where every recorded kernel unrolls on the fly: in fp32 and fp64, for few output channels."""
    return asked.itemsize >= DType.FP32.nbytes and asked.k <= 64 and prod(asked.taps) > 1


def _channel_padding(asked: Asked) -> int:
    return 1 if asked.arithmetic is Arithmetic.FP64 else 8
