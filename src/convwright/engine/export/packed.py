"""Small tensors as JSON data, and back."""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Mapping
from math import prod
from typing import Any
from zlib import compress, decompressobj, error

import torch
from torch import Tensor

from convwright.errors import BadInput, Refused

_DTYPES = {str(each).removeprefix("torch."): each for each in (
    torch.bool, torch.uint8, torch.int16, torch.int32, torch.int64,
)}  # fmt: skip
_MOST_BYTES = 2**28


def packed(tensor: Tensor) -> dict[str, Any]:
    """A tensor of integers or booleans as JSON data; on "meta" it has no numbers."""
    dtype = str(tensor.dtype).removeprefix("torch.")
    if dtype not in _DTYPES:
        raise Refused(f"a constant of {dtype} cannot be written as an argument of an operator")
    data = {"dtype": dtype, "shape": list(tensor.shape)}
    if tensor.is_meta:
        return data
    numbers = bytes(tensor.detach().cpu().reshape(-1).contiguous().view(torch.uint8).tolist())
    return data | {"zlib": b64encode(compress(numbers)).decode()}


def unpacked(data: Mapping[str, Any]) -> Tensor:
    """The tensor. Its data may come from a file, so that its size is checked before memory is taken."""
    dtype, shape = _DTYPES.get(data["dtype"]), [int(size) for size in data["shape"]]
    if dtype is None or min(shape, default=0) < 0 or (nbytes := prod(shape) * dtype.itemsize) > _MOST_BYTES:
        raise BadInput(f"an argument of an operator cannot be a tensor of {data['dtype']} {shape}")
    if "zlib" not in data:
        return torch.empty(shape, dtype=dtype, device="meta")
    try:
        numbers = bytearray(decompressobj().decompress(b64decode(data["zlib"]), nbytes + 1))
    except (ValueError, error) as wrong:
        raise BadInput(f"the numbers of a tensor of {data['dtype']} {shape} cannot be read: {wrong}") from None
    if len(numbers) != nbytes:
        raise BadInput(f"a tensor of {data['dtype']} {shape} has {nbytes} bytes, got {len(numbers)}")
    return torch.frombuffer(numbers, dtype=dtype).reshape(shape) if nbytes else torch.empty(shape, dtype=dtype)
