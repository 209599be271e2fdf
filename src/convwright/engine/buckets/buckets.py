"""A bucket: the input sizes of one planned engine."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from convwright.core.tensor_spec import Layout, TensorSpec
from convwright.errors import BadInput
from convwright.tensors import core_dtype, empty

# A batch size, the shape of the input, or the shapes of all inputs.
Bucket = int | tuple[int, ...] | tuple[tuple[int, ...], ...]
Shapes = tuple[tuple[int, ...], ...]


def bucket_of(given: Any) -> Bucket:
    """A bucket from what a user or a file gives.

    >>> bucket_of([1, 3, 8, 8]), bucket_of([[1, 3], [1, 4]]), bucket_of(4)
    ((1, 3, 8, 8), ((1, 3), (1, 4)), 4)
    """
    if _is_size(given):
        return int(given)
    if isinstance(given, Sequence) and given and not isinstance(given, str):
        if all(map(_is_size, given)):
            return tuple(given)
        if all(isinstance(each, Sequence) and all(map(_is_size, each)) for each in given):
            return tuple(map(tuple, given))
    raise BadInput(f"a bucket is a batch size, a shape, or a tuple of the shapes of all inputs, got {given!r}")


def _is_size(given: Any) -> bool:
    return isinstance(given, int) and not isinstance(given, bool) and given > 0


def bucket_text(bucket: Bucket) -> str:
    """
    >>> bucket_text(4), bucket_text((1, 3, 8, 8)), bucket_text(((1, 3), (1, 4)))
    ('4', '1x3x8x8', '1x3+1x4')
    """
    shapes = ((bucket,),) if isinstance(bucket, int) else _listed(bucket)
    return "+".join("x".join(map(str, shape)) for shape in shapes)


def bucket_from(text: str) -> Bucket:
    """
    >>> [bucket_from(text) for text in ("4", "1x3x8x8", "1x3+1x4")]
    [4, (1, 3, 8, 8), ((1, 3), (1, 4))]
    """
    try:
        shapes = [[int(size) for size in shape.split("x")] for shape in text.split("+")]
    except ValueError:
        raise BadInput(f"a bucket is written as 32, 32x3x224x224, or 32x3x224x224+32x8, got {text!r}") from None
    if len(shapes) > 1:
        return bucket_of(shapes)
    return bucket_of(shapes[0] if "x" in text else shapes[0][0])


def _listed(bucket: Any) -> Shapes:
    """The shapes of all inputs, if the bucket lists them."""
    return bucket if isinstance(bucket[0], tuple) else (bucket,)


def shapes_of(bucket: Bucket, example: Sequence[Tensor]) -> Shapes:
    """The shapes of all inputs, taking what the bucket leaves out from the example."""
    if isinstance(bucket, int):
        batches = {tuple(each.shape[:1]) for each in example}
        if len(batches) > 1 or () in batches:
            raise BadInput(
                "a batch size can be a bucket only if it is the first dimension of every input: give shapes instead"
            )
        return tuple((bucket, *each.shape[1:]) for each in example)
    shapes = _listed(bucket)
    if [len(shape) for shape in shapes] != [each.dim() for each in example]:
        had = ", ".join(str(tuple(each.shape)) for each in example)
        raise BadInput(f"a bucket must have as many dimensions as `example`, {had}, got {bucket}")
    return shapes


def resized(tensor: Tensor, shape: tuple[int, ...]) -> Tensor:
    """A tensor repeated or cut to a shape, in the same layout.

    >>> resized(torch.tensor([[1, 2, 3]], dtype=torch.int8), (2, 2)).tolist()
    [[1, 2], [1, 2]]
    """
    if tuple(tensor.shape) == shape:
        return tensor
    spec, made = TensorSpec(tuple(tensor.shape), core_dtype(tensor.dtype), tensor.stride()), tensor
    for dim, size in enumerate(shape):
        made = made.index_select(dim, torch.arange(size, device=tensor.device) % tensor.shape[dim])
    layout = Layout.NHWC if spec.layout is Layout.NHWC else Layout.NCHW
    return empty(TensorSpec(shape, spec.dtype).dense(layout), tensor.device).copy_(made)
