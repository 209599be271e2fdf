"""Check whether a model computes each image of a batch independently of the others and of the batch size."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from itertools import count
from math import sqrt
from typing import Any

import torch
from torch import Tensor, nn

from convwright import torch_api
from convwright.engine.buckets.buckets import resized
from convwright.engine.capture.unchanged import unchanged
from convwright.errors import first_line
from convwright.tensors import core_dtype

# Two runs of one batch size use the same algorithms, and their results differ at most by so many roundoffs.
_SAME_RUN = 64
# On a GPU, PyTorch may round operands to TF32.
_TF32_ROUNDOFF = 2.0**-11


def why_whole(model: nn.Module, inputs: tuple[Any, ...], batches: Collection[int]) -> str | None:
    """The reason why a batch must not be padded or split, or None. It runs the model for each batch size in ``batches``
    and one more."""
    tensors, nesting = torch_api.flatten(inputs)
    other_size = next(size for size in count(2) if size not in batches)
    sizes = sorted({*batches, other_size})
    most = max(3, sizes[-1])
    plain = [resized(each, (most, *each.shape[1:])) for each in tensors]
    # Images with others before and after them.
    between = [torch.cat((_changed(each[:1]), each[1:-1], _changed(each[-1:]))) for each in plain]

    def outputs(given: Sequence[Tensor]) -> list[Tensor]:
        made: list[Tensor] = torch_api.flatten(model(*torch_api.unflatten(list(given), nesting)))[0]
        return made

    size = most
    try:
        with torch.no_grad(), unchanged(model):
            whole = outputs(between)
            for place, (one, other) in enumerate(zip(outputs(plain), whole, strict=True)):
                if tuple(other.shape[:1]) != (most,):
                    return f"the first dimension of output {place} is not the batch"
                if not _equal(one[1:-1], other[1:-1], _SAME_RUN * core_dtype(other.dtype).roundoff):
                    return f"output {place} of one image depends on the other images of the batch"
            for size in sizes:
                for place, (few, all_) in enumerate(
                    zip(outputs([each[-size:] for each in between]), whole, strict=True)
                ):
                    if not _equal(few, all_[-size:], _between_sizes(all_)):
                        return f"output {place} of one image is not the same in batches of {size} and {most}"
    except Exception as error:  # a model can raise anything
        return f"the model fails for a batch of {size}: {first_line(error)}"
    return None


def _changed(image: Tensor) -> Tensor:
    """Another image. Whole numbers, which may be indices, keep their range."""
    return image * 2 + 1 if image.is_floating_point() else image.flip([*range(1, image.dim())])


def _equal(first: Tensor, second: Tensor, allowed: float) -> bool:
    """Whether results differ at most by ``allowed`` times the largest one."""
    a, b = first.double(), second.double()
    scale = float(b.nan_to_num(0.0, 0.0, 0.0).abs().amax()) if b.numel() else 0.0
    return a.shape == b.shape and torch.allclose(a, b, rtol=0.0, atol=allowed * scale, equal_nan=True)


def _between_sizes(output: Tensor) -> float:
    """By which share results may differ between batch sizes, which use different algorithms."""
    roundoff = core_dtype(output.dtype).roundoff
    is_rounded = output.device.type == "cuda" and output.dtype is torch.float32
    return sqrt(max(roundoff, _TF32_ROUNDOFF * is_rounded))
