"""Pooling: the largest element of each window of an image, or the average."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from typing import ClassVar

from convwright.core.dtype import IN_PYTORCH, Arithmetic, DType
from convwright.core.geometry import Axis
from convwright.core.kinds import pool_text as text_form
from convwright.core.kinds.pool_window import Pooling, output_shape
from convwright.core.kinds.written import TextForm, WrittenProblem
from convwright.core.once import once
from convwright.core.tensor_spec import TensorSpec
from convwright.core.window import IntOrTuple, per_axis
from convwright.errors import BadInput
from convwright.naming import one_of

_NAMES = ("taps", "stride", "padding", "dilation")


@dataclass(frozen=True)
class PoolProblem(WrittenProblem):
    """``y``, with one element for each window of ``x``, as ``F.max_pool2d`` and ``F.avg_pool2d`` compute it.

    Padding is the same on both sides of an axis: minus infinity for a maximum, zeros for an average, which count if
    ``includes_padding``. ``ceil`` adds windows that start inside the image and end after it. ``divisor`` replaces the
    number of elements in an average.

    Problems that compute the same are equal: an option without effect gets its default.

    >>> problem = PoolProblem.parse("pool max mb32ic64ih112 kh3sh2ph1")
    >>> problem.y.shape, problem.taps, problem.stride
    ((32, 64, 56, 56), (3, 3), (2, 2))
    """

    kind: ClassVar[str] = "pool"
    text_form: ClassVar[TextForm] = text_form

    pooling: Pooling
    x: TensorSpec
    y: TensorSpec
    taps: tuple[int, ...]
    stride: tuple[int, ...]
    padding: tuple[int, ...]
    dilation: tuple[int, ...]
    ceil: bool = False
    includes_padding: bool = True
    divisor: int | None = None

    def __post_init__(self) -> None:
        self._check_window()
        wanted = output_shape(self.x.shape, self.taps, self.stride, self.padding, self.dilation, ceil=self.ceil)
        if self.y.shape != wanted:
            raise BadInput(f"pooling makes {wanted} of {self.x.shape}, got an output of {self.y.shape}")
        if self.x.dtype is not self.y.dtype or self.x.dtype not in IN_PYTORCH:
            stored = f"{self.x.dtype} and {self.y.dtype}"
            raise BadInput(f"operands of a pool are both stored in one of {', '.join(IN_PYTORCH)}, got {stored}")
        if self.y.overlaps_itself:
            raise BadInput(f"the output must not overlap itself, got strides {self.y.strides}")
        self._check_average()
        floor = output_shape(self.x.shape, self.taps, self.stride, self.padding, self.dilation)
        object.__setattr__(self, "ceil", self.ceil and floor != wanted)
        counts_it = self.pooling is Pooling.AVG and self.divisor is None and any(self.padding)
        object.__setattr__(self, "includes_padding", self.includes_padding or not counts_it)

    def _check_window(self) -> None:
        if not 3 <= len(self.x.shape) <= 5:
            raise BadInput(f"the input of a pool has 3 to 5 dimensions: images, channels, sizes; got {self.x.shape}")
        if 0 in self.x.shape[1:]:
            raise BadInput(f"a pool needs at least one channel and one element of each size, got {self.x.shape}")
        rank = len(self.x.shape) - 2
        for name in _NAMES:
            given = getattr(self, name)
            if len(given) != rank:
                raise BadInput(f"`{name}` of a pool has {rank} entries, as many as the image has sizes, got {given}")
            least = 0 if name == "padding" else 1
            if min(given) < least:
                raise BadInput(f"`{name}` of a pool must be at least {least}, got {given}")
        for pad, window in zip(self.padding, self.taps, strict=True):
            if pad > window // 2:
                raise BadInput(f"padding of a pool must be at most half of the window, got {pad} for {window} elements")

    def _check_average(self) -> None:
        if self.pooling is Pooling.AVG:
            if any(each != 1 for each in self.dilation):
                raise BadInput(f"an average has no dilation, got {self.dilation}")
            if self.divisor is not None and self.divisor < 1:
                raise BadInput(f"the divisor of an average must be at least 1, got {self.divisor}")
        elif self.divisor is not None:
            raise BadInput(f"a maximum is not divided, got the divisor {self.divisor}")

    @classmethod
    def of(
        cls,
        pooling: Pooling | str,
        shape: tuple[int, ...],
        window: IntOrTuple,
        *,
        stride: IntOrTuple | None = None,
        padding: IntOrTuple = 0,
        dilation: IntOrTuple = 1,
        ceil: bool = False,
        includes_padding: bool = True,
        divisor: int | None = None,
        dtype: DType | str = DType.FP32,
    ) -> PoolProblem:
        """A problem with dense operands, from PyTorch's arguments. The default stride is the window.

        >>> PoolProblem.of("avg", (8, 64, 56, 56), 2).key
        'pool avg mb8ic64ih56iw56 kh2kw2sh2sw2ph0pw0dh0dw0 dt:fp32 tag:nchw'
        """
        rank, stored = len(shape) - 2, DType.parse(str(dtype))
        taps = per_axis("window", window, rank)
        steps = taps if stride is None else per_axis("stride", stride, rank)
        how = taps, steps, per_axis("padding", padding, rank), per_axis("dilation", dilation, rank)
        if min(*steps, *how[3]) < 1:
            raise BadInput(f"`stride` and `dilation` of a pool must be at least 1, got {steps} and {how[3]}")
        y = output_shape(shape, *how, ceil=ceil)
        kind = one_of(Pooling, "pooling", str(pooling))
        return cls(kind, TensorSpec(shape, stored), TensorSpec(y, stored), *how, ceil, includes_padding, divisor)

    @property
    def dtype(self) -> DType:
        return self.x.dtype

    @property
    def rank(self) -> int:
        """Spatial dimensions."""
        return len(self.taps)

    @once
    def axes(self) -> tuple[Axis, ...]:
        """The geometry of each spatial dimension. The padding at the end is what the last window needs: with ``ceil``
        more than the problem's, otherwise possibly less."""
        found = []
        for dim in range(self.rank):
            size, out = self.x.shape[2 + dim], self.y.shape[2 + dim]
            taps, stride, pad, dilation = self.taps[dim], self.stride[dim], self.padding[dim], self.dilation[dim]
            after = (out - 1) * stride + (taps - 1) * dilation + 1 - size - pad
            found.append(Axis(size, taps, stride, (pad, after), dilation))
        return tuple(found)

    @property
    def operands(self) -> Mapping[str, TensorSpec]:
        return {"x": self.x, "y": self.y}

    @property
    def flops(self) -> int:
        """One comparison or addition for each element of a window that is not padding."""
        return prod(self.x.shape[:2]) * prod(axis.products() for axis in self.axes)

    @property
    def bytes(self) -> int:
        touched = prod(self.x.shape[:2]) * prod(axis.touched() for axis in self.axes)
        return touched * self.x.dtype.nbytes + self.y.nbytes

    @property
    def reduction(self) -> int:
        """Elements of a window."""
        return prod(self.taps)

    def error_bound(self, arithmetic: Arithmetic) -> float:
        """A maximum is exact. An average is rounded at each addition, at the division and when stored."""
        if self.pooling is Pooling.MAX:
            return 0.0
        accumulator = 2.0**-53 if self.dtype is DType.FP64 else 2.0**-24
        return 1.0 + (self.reduction + 3) * accumulator / self.dtype.roundoff
