"""Track writes to parts of a buffer, so that a backward pass can use a slice that later writes did not touch.

PyTorch keeps one version for a whole buffer, so a write to any slice invalidates every saved slice. Here each write to
a slice is logged with the versions before and after it. A saved slice is intact if logged writes that do not touch it
account for all versions since.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.utils.weak import WeakIdKeyDictionary, WeakIdRef

from convwright import torch_api
from convwright.errors import BadInput
from convwright.torch_api import overlaps_itself

_MOST_WRITES = 4096


# A box inside a storage, in the strides of the tensor; None means the whole storage.
_Region = tuple[tuple[int, int], ...] | None


class Write(NamedTuple):
    """A logged write. Its region is computed only on demand, since most writes are never checked."""

    before: int
    after: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int


_log: Any = WeakIdKeyDictionary()  # compares keys by id: tensors compare by element


def base_of(tensor: Tensor) -> Tensor:
    """The tensor that another is a view of, or the tensor itself."""
    base = torch_api.base_of(tensor)
    return tensor if base is None else base


def _region_of(tensor: Tensor) -> _Region:
    return _region(tensor.shape, tensor.stride(), int(tensor.storage_offset()))


def _region(shape: Sequence[int], strides: Sequence[int], offset: int) -> _Region:
    """The box of the storage that a tensor covers; the whole storage if it is not a box."""
    starts, extent = [0] * len(shape), None
    for dim in sorted(range(len(shape)), key=strides.__getitem__, reverse=True):
        step = strides[dim]
        if step == 0:
            return None
        starts[dim], offset = divmod(offset, step)
        if extent is not None and (starts[dim] + shape[dim]) * step > extent:
            return None
        extent = step
    ends = [start + size for start, size in zip(starts, shape, strict=True)]
    return tuple(zip(starts, ends, strict=True))


def _meet(one: _Region, other: _Region) -> bool:
    if one is None or other is None:
        return True
    return all(a < d and c < b for (a, b), (c, d) in zip(one, other, strict=True))


def check_apart(out: Tensor, **others: Tensor | None) -> None:
    """Refuse an output that overlaps itself or another operand: candidates read while they write."""
    if overlaps_itself(out):
        raise BadInput(
            f"`out` must not overlap itself in memory, got shape {tuple(out.shape)} in strides {out.stride()}"
        )
    for name, other in others.items():
        if other is not None and _overlap(out, other):
            raise BadInput(
                f"`out` and `{name}` must not overlap in memory, got {_words(out)} and {_words(other)} of one"
            )


def _overlap(a: Tensor, b: Tensor) -> bool:
    if not torch_api.share_storage(a, b):
        return False
    if a.stride() == b.stride():
        return _meet(_region_of(a), _region_of(b))
    return a.data_ptr() < _end(b) and b.data_ptr() < _end(a)


def _end(tensor: Tensor) -> int:
    last = sum((size - 1) * step for size, step in zip(tensor.shape, tensor.stride(), strict=True))
    return tensor.data_ptr() + (last + 1) * tensor.element_size()


def _words(tensor: Tensor) -> str:
    region = _region_of(tensor)
    return "a part" if region is None else "[" + ", ".join(f"{start}:{end}" for start, end in region) + "]"


def version_of(tensor: Tensor) -> int:
    """The version of a tensor's memory; 0 for inference tensors, which have none."""
    return 0 if tensor.is_inference() else torch_api.version_of(tensor)


def count_write(tensor: Tensor) -> None:
    """Report to autograd a write that PyTorch did not see."""
    if not tensor.is_inference():
        torch.autograd.graph.increment_version(tensor)


def log_write(tensor: Tensor, before: int) -> None:
    """Log a write to ``tensor`` that changed its buffer's version from ``before`` to the present one."""
    if tensor.is_inference():
        return  # an inference tensor has no version, and no gradient needs it
    writes = _log.setdefault(base_of(tensor), [])
    now, offset = torch_api.version_of(tensor), int(tensor.storage_offset())
    writes.append(Write(before, now, tensor.shape, tensor.stride(), offset))
    del writes[:-_MOST_WRITES]


class Kept:
    """A slice as a forward pass read it, for the backward pass.

    It holds the storage but not the buffer tensor, whose history refers back to the owner of this object.
    """

    __slots__ = ("_base", "_region", "tensor", "version")

    def __init__(self, tensor: Tensor) -> None:
        self.tensor = tensor.detach()
        self.version = torch_api.version_of(tensor)
        self._base = WeakIdRef(base_of(tensor))
        self._region = _region_of(tensor)

    def intact(self) -> Tensor:
        """The slice; an error if a write since ``version`` may have changed it."""
        base, now, version = self._base(), torch_api.version_of(self.tensor), self.version
        writes = {write.before: write for write in _log.get(base, [])} if base is not None else {}
        while version < now:
            write = writes.get(version)
            if write is None or write.strides != self.tensor.stride() or _meet(_region(*write[2:]), self._region):
                raise RuntimeError(
                    "a slice that conv2d_into needs for its gradient was overwritten after it was used: "
                    f"its buffer was at version {self.version} then and is at {now} now"
                )
            version = write.after
        return self.tensor
