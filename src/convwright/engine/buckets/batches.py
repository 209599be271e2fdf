"""Check whether a model computes each image of a batch independently of the others."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from itertools import count
from typing import Any

import torch
from torch import Tensor

from convwright import torch_api
from convwright.engine.buckets.buckets import resized
from convwright.errors import first_line
from convwright.tensors import core_dtype


def why_whole(model: Callable[..., Any], inputs: tuple[Any, ...], batches: Collection[int]) -> str | None:
    """The reason why a batch must not be padded or split, or None. It runs the model on a batch size not in
    ``batches``."""
    tensors, nesting = torch_api.flatten(inputs)
    size = next(size for size in count(2) if size not in batches)
    given = [resized(each, (size, *each.shape[1:])) for each in tensors]
    other = [torch.cat((each[:-1], each[-1:] * 2 + 1)) for each in given]
    try:
        with torch.no_grad():
            first, second = (model(*torch_api.unflatten(each, nesting)) for each in (given, other))
    except Exception as error:  # a model can raise anything
        return f"the model fails for a batch of {size}: {first_line(error)}"
    ones, others = torch_api.flatten(first)[0], torch_api.flatten(second)[0]
    for place, output in enumerate(ones):
        if tuple(output.shape[:1]) != (size,):
            return f"the first dimension of output {place} is not the batch"
    return _mixed(ones, others)


def _mixed(first: Sequence[Tensor], second: Sequence[Tensor]) -> str | None:
    """Why a batch must not be split: an image's output changes with the rest of the batch by more than rounding."""
    for place, (one, two) in enumerate(zip(first, second, strict=True)):
        a, b = one[:-1].double(), two[:-1].double()
        scale = float(a.nan_to_num(0.0, 0.0, 0.0).abs().amax()) if a.numel() else 0.0
        allowed = core_dtype(one.dtype).roundoff ** 0.5 * scale
        if not torch.allclose(a, b, rtol=0.0, atol=allowed, equal_nan=True):
            return f"output {place} of one image depends on the other images of the batch"
    return None
