"""Resizing of an image: each output pixel is the nearest input pixel, or a mean of its neighbours."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from math import prod
from struct import pack, unpack
from typing import ClassVar

from convwright.core.dtype import IN_PYTORCH, Arithmetic, DType
from convwright.core.kinds import resize_text as text_form
from convwright.core.kinds.written import TextForm, WrittenProblem
from convwright.core.once import once
from convwright.core.tensor_spec import TensorSpec
from convwright.errors import BadInput
from convwright.naming import one_of

# One per spatial dimension; None means the ratio of the sizes.
Scales = tuple[float | None, ...]
# Allowance for products of small errors in a bound that only adds errors.
_SECOND_ORDER = 0.01


class Interpolation(StrEnum):
    """How an output pixel is computed: the nearest input pixel, or along each dimension the mean of the two pixels
    around it, weighted by distance."""

    NEAREST = "nearest"
    LINEAR = "linear"


@dataclass(frozen=True)
class ResizeProblem(WrittenProblem):
    """``y`` is the image ``x`` with other sizes, as ``F.interpolate`` computes it.

    Neighbours in the output are one *step* apart in the input. The step is the ratio of the sizes, or the reciprocal of
    PyTorch's scale factor if ``scales`` has one. With ``aligned_corners`` the first and last pixels of both images
    coincide, and scales have no effect.

    Positions are computed in fp32; in fp64 for a mean of fp64 pixels. No problem exists where PyTorch's kernels for
    CPUs and GPUs differ: for nearest pixels with a scale that differs from the ratio of the sizes while the size stays
    the same or doubles, and where fp64 rounding decides which pixel is nearest.

    >>> problem = ResizeProblem.parse("resize linear mb32ic64ih28 oh56 dt:fp16")
    >>> problem.y.shape, problem.steps, problem.flops
    ((32, 64, 56, 56), (0.5, 0.5), 57802752)
    """

    kind: ClassVar[str] = "resize"
    text_form: ClassVar[TextForm] = text_form

    x: TensorSpec
    y: TensorSpec
    interpolation: Interpolation
    aligned_corners: bool = False
    scales: Scales = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "interpolation", one_of(Interpolation, "interpolation", self.interpolation))
        shape, wanted = self.x.shape, self.y.shape
        if not 3 <= len(shape) <= 5 or len(wanted) != len(shape) or wanted[:2] != shape[:2]:
            raise BadInput(f"a resize keeps images and channels of 1 to 3 dimensions, got {shape} and {wanted}")
        if min(*shape[1:], *wanted[1:]) < 1:
            raise BadInput(f"a resize needs at least one channel and one pixel, got {shape} and {wanted}")
        if self.x.dtype is not self.y.dtype or self.x.dtype not in IN_PYTORCH:
            stored = f"{self.x.dtype} and {self.y.dtype}"
            raise BadInput(f"both images of a resize are stored in one of {', '.join(IN_PYTORCH)}, got {stored}")
        if self.aligned_corners and self.interpolation is Interpolation.NEAREST:
            raise BadInput("corners are aligned where pixels are interpolated linearly, not where the nearest is taken")
        if self.y.overlaps_itself:
            raise BadInput(f"the output must not overlap itself, got strides {self.y.strides}")
        object.__setattr__(self, "scales", self._scales_that_matter())
        self._check_positions()

    def _scales_that_matter(self) -> Scales:
        """The scales, with None for one that equals the ratio of the sizes; empty if all do."""
        given = tuple(None if scale is None else float(scale) for scale in self.scales)
        if given and len(given) != len(self.sizes):
            raise BadInput(f"`scales` has one for each of {len(self.sizes)} dimensions, got {given}")
        if any(scale is not None and not 0.0 < scale < float("inf") for scale in given):
            raise BadInput(f"a scale is a positive number, got {given}")
        if self.aligned_corners:
            return ()
        kept = tuple(
            None if scale is None or self._step(dim, scale) == self._step(dim, None) else scale
            for dim, scale in enumerate(given)
        )
        return kept if any(scale is not None for scale in kept) else ()

    def _check_positions(self) -> None:
        """Refuse problems on which PyTorch's own kernels differ."""
        is_nearest = self.interpolation is Interpolation.NEAREST
        for dim, (size, out) in enumerate(self.sizes):
            scale = self.scales[dim] if self.scales else None
            if scale is not None and (out == size or (is_nearest and out == 2 * size)):
                raise BadInput(f"PyTorch's kernels do not agree on {size} pixels that become {out} with scale {scale}")
            if not is_nearest and scale is not None and self._step(dim, scale) * (out - 0.5) - 0.5 >= size:
                raise BadInput(f"with scale {scale} the last of {out} pixels lies beyond the {size} of the input")
            if is_nearest and self.dtype is DType.FP64:  # some kernels compute positions in fp64 here
                exact, step = self._exact_step(dim, scale), self._step(dim, scale)
                if any(int(exact * at) != int(_fp32(step * at)) for at in range(out)):
                    raise BadInput(f"PyTorch's kernels do not agree on {size} pixels in fp64 that become {out}")

    def _step(self, dim: int, scale: float | None) -> float:
        """The step, rounded to fp32 if positions are computed in fp32."""
        exact = self._exact_step(dim, scale)
        return exact if self.positions_in is DType.FP64 else _fp32(exact)

    def _exact_step(self, dim: int, scale: float | None) -> float:
        size, out = self.sizes[dim]
        if self.aligned_corners:
            return (size - 1) / (out - 1) if out > 1 else 0.0
        return size / out if scale is None else 1 / scale

    @property
    def sizes(self) -> tuple[tuple[int, int], ...]:
        """The input's size and the output's, for each spatial dimension."""
        return tuple(zip(self.x.shape[2:], self.y.shape[2:], strict=True))

    @property
    def positions_in(self) -> DType:
        """The arithmetic of positions; always fp32 for nearest pixels."""
        is_double = self.x.dtype is DType.FP64 and self.interpolation is Interpolation.LINEAR
        return DType.FP64 if is_double else DType.FP32

    @once
    def steps(self) -> tuple[float, ...]:
        """The exact distance in the input between neighbours in the output, along each dimension."""
        scales = self.scales or (None,) * len(self.sizes)
        return tuple(self._step(dim, scale) for dim, scale in enumerate(scales))

    @property
    def shift(self) -> float:
        """The offset of a pixel's centre: a position is ``step * (place + shift) - shift``, at least 0."""
        return 0.0 if self.aligned_corners or self.interpolation is Interpolation.NEAREST else 0.5

    @property
    def dtype(self) -> DType:
        return self.x.dtype

    @property
    def operands(self) -> Mapping[str, TensorSpec]:
        return {"x": self.x, "y": self.y}

    @property
    def flops(self) -> int:
        """Two products and a sum for each pair of numbers, of 2, 4 or 8 for each element."""
        is_nearest = self.interpolation is Interpolation.NEAREST
        return 0 if is_nearest else 3 * (2 ** len(self.sizes) - 1) * self.y.numel

    @property
    def bytes(self) -> int:
        """For a much larger input, only the pixels that are read count."""
        each = 1 if self.interpolation is Interpolation.NEAREST else 2
        read = prod(min(size, each * out) for size, out in self.sizes) * prod(self.x.shape[:2])
        return read * self.x.dtype.nbytes + self.y.nbytes

    @property
    def reduction(self) -> int:
        return 1 if self.interpolation is Interpolation.NEAREST else 2 ** len(self.sizes)

    def error_bound(self, arithmetic: Arithmetic) -> float:
        """1, for a mean: its errors are divided by what each step may add. A nearest pixel is exact."""
        return 1.0 + _SECOND_ORDER


def _fp32(number: float) -> float:
    """Rounded to fp32."""
    rounded: float = unpack("f", pack("f", number))[0]
    return rounded
