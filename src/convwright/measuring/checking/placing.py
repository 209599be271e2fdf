"""Place values in memory with the layout of a spec."""

from __future__ import annotations

import torch
from torch import Tensor

from convwright.core.tensor_spec import TensorSpec
from convwright.tensors import spoil_, torch_dtype

# Elements of NaN before and after an operand; a multiple of every alignment.
_MARGIN = 4096


def placed(values: Tensor, spec: TensorSpec) -> Tensor:
    """The values in memory with the spec's layout, with NaN around them and in any gaps.

    Some libraries' kernels read beyond their operands and multiply that by zero: NaN makes it visible.
    """
    span = spec.span_bytes // spec.dtype.nbytes
    buffer = spoil_(torch.empty(span + 2 * _MARGIN, dtype=torch_dtype(spec.dtype), device=values.device))
    tensor = buffer.as_strided(spec.shape, spec.strides, _MARGIN)
    # An expanded dimension has stride 0 and stores a single value.
    stored = tuple(slice(0, 1) if stride == 0 else slice(None) for stride in spec.strides)
    tensor[stored].copy_(values[stored].to(torch_dtype(spec.dtype)))
    return tensor


def channel_factors(values: Tensor, decades: int) -> Tensor:
    """Factors from 10^-decades to 10^decades over the channels, small and large ones mixed."""
    channels = values.shape[1]
    factors = torch.logspace(-decades, decades, channels, device=values.device, dtype=values.dtype)
    order = torch.arange(channels, device=values.device)
    mixed = torch.where(order % 2 == 0, order // 2, channels - 1 - order // 2)
    return factors[mixed].reshape(1, channels, *[1] * (values.dim() - 2))
