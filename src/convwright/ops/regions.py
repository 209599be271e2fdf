"""Which part of a buffer was written when: lets a backward pass use a slice that later writes left alone.

PyTorch keeps one version for a whole buffer, so any write to any slice makes it refuse every slice that was saved
before. Here each write to a slice is logged with the versions before and after it; a saved slice is intact if all
versions since then are accounted for by writes that do not touch it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torch import Tensor
from torch.utils.weak import WeakIdKeyDictionary, WeakIdRef

from convwright.errors import BadInput

_MOST_WRITES = 4096


@dataclass(frozen=True, slots=True)
class Region:
    """A box inside a dense buffer; None stands for all of it."""

    box: tuple[tuple[int, int], ...] | None

    def overlaps(self, other: Region) -> bool:
        if self.box is None or other.box is None:
            return True
        return all(a < d and c < b for (a, b), (c, d) in zip(self.box, other.box, strict=True))


@dataclass(frozen=True, slots=True)
class Write:
    before: int
    after: int
    region: Region


_log: Any = WeakIdKeyDictionary()  # tensors compare by element, so a plain WeakKeyDictionary will not do


def base_of(tensor: Tensor) -> Tensor:
    return tensor if tensor._base is None else tensor._base


def region_of(tensor: Tensor) -> Region:
    """The box of its buffer that ``tensor`` covers; the whole buffer where it is not a box of it."""
    base = base_of(tensor)
    if tensor.dim() != base.dim() or tensor.stride() != base.stride():
        return Region(None)
    offset, starts = int(tensor.storage_offset()) - int(base.storage_offset()), [0] * base.dim()
    for dim in sorted(range(base.dim()), key=base.stride, reverse=True):
        step = base.stride(dim)
        starts[dim], offset = divmod(offset, step) if step else (0, offset)
    ends = [start + size for start, size in zip(starts, tensor.shape, strict=True)]
    inside = all(end <= size for end, size in zip(ends, base.shape, strict=True))
    return Region(tuple(zip(starts, ends, strict=True)) if inside and offset == 0 else None)


def check_apart(out: Tensor, x: Tensor) -> None:
    """Refuse an output that overlaps the input: candidates read while they write."""
    if base_of(out) is base_of(x) and region_of(out).overlaps(region_of(x)):
        raise BadInput(
            "`out` and `input` must not overlap: "
            f"they are {_words(region_of(out))} and {_words(region_of(x))} of the same buffer"
        )


def _words(region: Region) -> str:
    if region.box is None:
        return "a part"
    return "[" + ", ".join(f"{start}:{end}" for start, end in region.box) + "]"


def log_write(tensor: Tensor, before: int) -> None:
    """Note that ``tensor`` was written to, which took its buffer from version ``before`` to the present one."""
    writes = _log.setdefault(base_of(tensor), [])
    writes.append(Write(before, tensor._version, region_of(tensor)))
    del writes[:-_MOST_WRITES]


class Kept:
    """A slice as a forward pass used it, for the backward pass.

    It holds the memory, but not the buffer itself: the buffer's history leads back to whoever keeps this.
    """

    __slots__ = ("_base", "_region", "tensor", "version")

    def __init__(self, tensor: Tensor) -> None:
        self.tensor = tensor.detach()
        self.version = tensor._version
        self._base = WeakIdRef(base_of(tensor))
        self._region = region_of(tensor)

    def intact(self) -> Tensor:
        """The slice, or an error where a write since ``version`` may have changed it."""
        base, now, version = self._base(), self.tensor._version, self.version
        writes = {write.before: write for write in _log.get(base, [])} if base is not None else {}
        while version < now:
            write = writes.get(version)
            if write is None or write.region.overlaps(self._region):
                raise RuntimeError(
                    "a slice that conv2d_into needs for its gradient was written over after it was used: "
                    f"its buffer was at version {self.version} then and is at {now} now"
                )
            version = write.after
        return self.tensor
