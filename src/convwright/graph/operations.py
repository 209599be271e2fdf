"""Operations of a graph that are not problems: operators of PyTorch, called as they are, views and concatenations. A
``Part``, which is read in place, occurs only in plans."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import accumulate
from math import prod
from typing import ClassVar

from convwright.core.kinds.problem import Problem
from convwright.core.record import Record
from convwright.core.tensor_spec import TensorSpec
from convwright.errors import BadInput


@dataclass(frozen=True, slots=True)
class Foreign(Record):
    """An operator of PyTorch, by name. ``arguments`` holds its positional and keyword arguments as strict JSON; the
    first tensor of ``inputs`` is written as ``{"tensor": 0}``. Outputs that are not in ``results`` are dropped."""

    kind: ClassVar[str] = "foreign"

    target: str
    arguments: str
    inputs: tuple[TensorSpec, ...]
    results: tuple[TensorSpec, ...]

    @property
    def key(self) -> str:
        return f"{self.target} {self.arguments}"

    @property
    def operands(self) -> Mapping[str, TensorSpec]:
        """Inputs as x0, x1, … and results as y0, y1, …"""
        return {f"x{place}": spec for place, spec in enumerate(self.inputs)} | {
            f"y{place}": spec for place, spec in enumerate(self.results)
        }

    @property
    def outputs(self) -> tuple[str, ...]:
        return tuple(f"y{place}" for place in range(len(self.results)))


@dataclass(frozen=True, slots=True)
class View(Record):
    """``y`` is the memory of ``x`` with another shape. Both are dense, with the last dimension innermost."""

    kind: ClassVar[str] = "view"

    x: TensorSpec
    y: TensorSpec

    def __post_init__(self) -> None:
        if prod(self.x.shape) != prod(self.y.shape) or self.x.dtype is not self.y.dtype:
            raise BadInput(f"a view must keep the element count and the dtype, got {self.x.shape} and {self.y.shape}")

    @property
    def key(self) -> str:
        return f"view {self.x.shape} as {self.y.shape}"

    @property
    def operands(self) -> Mapping[str, TensorSpec]:
        return {"x": self.x, "y": self.y}

    @property
    def outputs(self) -> tuple[str, ...]:
        return ("y",)


@dataclass(frozen=True, slots=True)
class Join(Record):
    """``y`` is the concatenation of ``inputs`` along a dimension."""

    kind: ClassVar[str] = "join"

    inputs: tuple[TensorSpec, ...]
    y: TensorSpec
    dim: int

    def __post_init__(self) -> None:
        shapes = [each.shape for each in self.inputs]
        rest = {(*shape[: self.dim], *shape[self.dim + 1 :]) for shape in (*shapes, self.y.shape)}
        together = sum(shape[self.dim] for shape in shapes)
        if (
            len(rest) != 1
            or together != self.y.shape[self.dim]
            or {each.dtype for each in self.inputs} != {self.y.dtype}
        ):
            raise BadInput(f"{shapes} along dimension {self.dim} do not make a {self.y.dtype} {self.y.shape}")

    @property
    def key(self) -> str:
        return f"join {'+'.join(str(each.shape[self.dim]) for each in self.inputs)} of {self.y.shape}, {self.dim}"

    @property
    def starts(self) -> tuple[int, ...]:
        """Where each input starts in the output."""
        sizes = [each.shape[self.dim] for each in self.inputs]
        return tuple(accumulate(sizes[:-1], initial=0))

    @property
    def operands(self) -> Mapping[str, TensorSpec]:
        return {f"x{place}": spec for place, spec in enumerate(self.inputs)} | {"y": self.y}

    @property
    def outputs(self) -> tuple[str, ...]:
        return ("y",)


@dataclass(frozen=True, slots=True)
class Part(Record):
    """``y`` is a part of ``x`` in its memory: the elements along one dimension from number ``start`` on, as many as
    ``y`` has."""

    kind: ClassVar[str] = "part"

    x: TensorSpec
    y: TensorSpec
    dim: int
    start: int

    def __post_init__(self) -> None:
        rank = len(self.x.shape)
        if not 0 <= self.dim < rank or not 0 <= self.start <= self.end <= self.x.shape[self.dim]:
            raise BadInput(f"{self.x.shape} has no part from {self.start} on along dimension {self.dim}")
        others = [(*shape[: self.dim], *shape[self.dim + 1 :]) for shape in (self.x.shape, self.y.shape)]
        if others[0] != others[1] or self.x.dtype is not self.y.dtype:
            raise BadInput(f"{self.y.dtype} {self.y.shape} is not a part of {self.x.dtype} {self.x.shape}")

    @property
    def end(self) -> int:
        return self.start + self.y.shape[self.dim]

    @property
    def key(self) -> str:
        return f"part {self.start}:{self.end} of {self.x.shape}, {self.dim}"

    @property
    def operands(self) -> Mapping[str, TensorSpec]:
        return {"x": self.x, "y": self.y}

    @property
    def outputs(self) -> tuple[str, ...]:
        return ("y",)


Operation = Problem | Foreign | View | Join | Part
# Operations that run nothing, and operations without a candidate.
NOTHING_RUNS = (View, Join, Part)
NO_PROBLEM = (Foreign, *NOTHING_RUNS)
