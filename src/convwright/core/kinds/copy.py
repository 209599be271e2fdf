"""Copies of a tensor with another layout, type, padding or cut."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from typing import ClassVar

from convwright.core.dtype import IN_PYTORCH, Arithmetic, DType
from convwright.core.kinds import copy_text as text_form
from convwright.core.kinds.written import TextForm, WrittenProblem
from convwright.core.tensor_spec import TensorSpec
from convwright.errors import BadInput

Margins = tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class CopyProblem(WrittenProblem):
    """``y`` receives the elements of ``x``.

    ``margins`` has a pair for each dimension: the zeros before and after the elements of ``x``; a negative number cuts
    elements off. These are the pads of ``F.pad`` in the order of the dimensions.

    >>> problem = CopyProblem.parse("copy ic8ih4 nchw->nhwc dt:fp32->fp16 pad:h=1,w=1:0")
    >>> problem.y.shape, problem.margins
    ((1, 8, 6, 5), ((0, 0), (0, 0), (1, 1), (1, 0)))
    """

    kind: ClassVar[str] = "copy"
    text_form: ClassVar[TextForm] = text_form

    x: TensorSpec
    y: TensorSpec
    margins: Margins = ()

    def __post_init__(self) -> None:
        margins = tuple((int(before), int(after)) for before, after in self.margins) or ((0, 0),) * len(self.x.shape)
        object.__setattr__(self, "margins", margins)
        if not len(self.x.shape) == len(self.y.shape) == len(margins):
            raise BadInput(f"a copy keeps its dimensions, got {self.x.shape}, {self.y.shape} and margins {margins}")
        wanted = tuple(size + before + after for size, (before, after) in zip(self.x.shape, margins, strict=True))
        if self.y.shape != wanted or any(kept < 0 for kept in self.kept):
            raise BadInput(f"with margins {margins} {self.x.shape} becomes {wanted}, got {self.y.shape}")
        if self.x.dtype is not self.y.dtype and not {self.x.dtype, self.y.dtype} <= set(IN_PYTORCH):
            raise BadInput(f"{self.x.dtype} cannot be copied to {self.y.dtype}; {', '.join(IN_PYTORCH)} can be cast")
        if self.y.overlaps_itself:
            raise BadInput(f"the output must not overlap itself, got strides {self.y.strides}")

    @property
    def kept(self) -> tuple[int, ...]:
        """How many elements of ``x`` are copied along each dimension."""
        pairs = zip(self.x.shape, self.margins, strict=True)
        return tuple(size + min(before, 0) + min(after, 0) for size, (before, after) in pairs)

    @property
    def read_from(self) -> tuple[int, ...]:
        """Where the copied elements start in ``x``."""
        return tuple(max(-before, 0) for before, _ in self.margins)

    @property
    def written_from(self) -> tuple[int, ...]:
        """Where they start in ``y``."""
        return tuple(max(before, 0) for before, _ in self.margins)

    @property
    def part(self) -> tuple[int, int] | None:
        """The dimension that is cut and its first kept element, if the copy does nothing else.

        >>> CopyProblem.parse("copy ic8ih4 slice:c=2:6").part
        (1, 2)
        """
        cut = [dim for dim, margin in enumerate(self.margins) if margin != (0, 0)]
        if self.pads or len(cut) != 1 or self.x.dtype is not self.y.dtype:
            return None
        return cut[0], self.read_from[cut[0]]

    @property
    def pads(self) -> bool:
        """Whether ``y`` contains zeros from padding."""
        return self.kept != self.y.shape

    @property
    def dtype(self) -> DType:
        """The output's type, which is at most as exact as the input's."""
        return DType.FP64 if DType.FP64 in (self.x.dtype, self.y.dtype) else self.y.dtype

    @property
    def operands(self) -> Mapping[str, TensorSpec]:
        return {"x": self.x, "y": self.y}

    @property
    def flops(self) -> int:
        return 0

    @property
    def bytes(self) -> int:
        return prod(self.kept) * self.x.dtype.nbytes + self.y.nbytes

    @property
    def reduction(self) -> int:
        return 1

    def error_bound(self, arithmetic: Arithmetic) -> float:
        """One rounding for a cast, else none."""
        return 1.0
