"""The operations of a graph that are no problems: operators of PyTorch, which are called as they are, and views."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from typing import ClassVar

from convwright.core.kinds.problem import Problem
from convwright.core.record import Record
from convwright.core.tensor_spec import TensorSpec
from convwright.errors import BadInput


@dataclass(frozen=True, slots=True)
class Foreign(Record):
    """An operator of PyTorch's by its name. ``arguments`` is the strict JSON of its positional arguments and of those
    by name, in which ``{"tensor": 0}`` is the first of ``inputs``."""

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
    """``y`` is the memory of ``x`` with other sizes; both are dense, with the last dimension innermost."""

    kind: ClassVar[str] = "view"

    x: TensorSpec
    y: TensorSpec

    def __post_init__(self) -> None:
        if prod(self.x.shape) != prod(self.y.shape) or self.x.dtype is not self.y.dtype:
            raise BadInput(f"a view keeps elements and dtype, got {self.x.shape} and {self.y.shape}")

    @property
    def key(self) -> str:
        return f"view {self.x.shape} as {self.y.shape}"

    @property
    def operands(self) -> Mapping[str, TensorSpec]:
        return {"x": self.x, "y": self.y}

    @property
    def outputs(self) -> tuple[str, ...]:
        return ("y",)


Operation = Problem | Foreign | View
