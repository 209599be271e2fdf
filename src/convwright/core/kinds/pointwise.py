"""An expression computed for each element of its broadcast operands, possibly with reductions over rows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import prod
from string import ascii_lowercase
from typing import ClassVar

from convwright.core.dtype import IN_PYTORCH, Arithmetic, DType
from convwright.core.kinds import expression as tree
from convwright.core.kinds import pointwise_text as text_form
from convwright.core.kinds.expression import Expression
from convwright.core.kinds.written import TextForm, WrittenProblem
from convwright.core.once import once
from convwright.core.tensor_spec import TensorSpec
from convwright.errors import BadInput
from convwright.naming import by

OUTPUT = "y"
# Default names of operands.
OPERAND_NAMES = tuple(letter for letter in ascii_lowercase if letter != OUTPUT)
# Words with another meaning in a text form.
_RESERVED = frozenset({OUTPUT, "out", "workspace", "before", "db", "dt", "tag", "dir", "ep", "row", "groups"})
# Allowance for products of small errors in a bound that only adds errors.
_SECOND_ORDER = 0.01


@dataclass(frozen=True)
class PointwiseProblem(WrittenProblem):
    """``y = expression(operands)``, element by element.

    Every operand has as many dimensions as the output; one of size 1 is broadcast. The arithmetic is fp32, or fp64 if
    an operand is fp64.

    ``sum``, ``mean`` and ``max`` reduce a row: all elements that differ only in the dimensions ``row``, which all
    reductions of an expression share. If the result is one value per row, ``y`` may have size 1 there. ``groups``
    divides the first dimension of a row into this many equal parts, each with rows of its own.

    >>> problem = PointwiseProblem.parse('pointwise "relu(a + b)" mb32ic64ih56 b:c')
    >>> problem.operands["b"].shape, problem.flops
    ((1, 64, 1, 1), 12845056)
    >>> problem = PointwiseProblem.parse('pointwise "mean(a)" mb32ic64ih56 row:hw y:nc')
    >>> problem.row, problem.shape, problem.y.shape
    ((2, 3), (32, 64, 56, 56), (32, 64, 1, 1))
    >>> problem = PointwiseProblem.parse('pointwise "a - mean(a)" mb32ic64ih56 row:chw groups:8')
    >>> problem.row_size, problem.ungrouped.shape, problem.ungrouped.row
    (25088, (32, 8, 8, 56, 56), (2, 3, 4))
    """

    kind: ClassVar[str] = "pointwise"
    text_form: ClassVar[TextForm] = text_form

    expression: Expression
    inputs: tuple[tuple[str, TensorSpec], ...]
    y: TensorSpec
    row: tuple[int, ...] = ()
    groups: int = 1

    def __post_init__(self) -> None:
        read, given = tree.names(self.expression), dict(self.inputs)
        if not read or tree.is_condition(self.expression):
            raise BadInput(f"an expression must be a number that depends on operands, got {self.expression}")
        if reserved := [name for name in read if name in _RESERVED]:
            raise BadInput(f"an operand cannot be called {reserved[0]!r}, which is the name of something else")
        if set(read) != set(given) or len(given) != len(self.inputs):
            raise BadInput(f"`inputs` must be {', '.join(read)}, as in the expression, got {', '.join(given)}")
        object.__setattr__(self, "inputs", tuple((name, given[name]) for name in read))
        object.__setattr__(self, "row", tuple(sorted(self.row)))
        self._check_row()
        for name in read:
            _check(name, given[name], self.shape)
        self._check_reductions()
        self._check_groups()
        if self.y.dtype not in IN_PYTORCH:
            raise BadInput(f"`{OUTPUT}` must be stored in {', '.join(IN_PYTORCH)}, got {self.y.dtype}")
        if self.y.overlaps_itself:
            raise BadInput(f"the output must not overlap itself, got strides {self.y.strides}")

    def _check_row(self) -> None:
        reduces = tree.reductions(self.expression)
        if bool(self.row) != bool(reduces):
            got = f"{self.expression} without a row" if reduces else f"a row for {self.expression}"
            raise BadInput(f"`row` names the dimensions that sum, mean and max reduce, got {got}")
        if len({*self.row}) != len(self.row) or not {*self.row} <= {*range(len(self.y.shape))}:
            raise BadInput(f"`row` must be different dimensions of {self.y.shape}, got {self.row}")

    def _check_reductions(self) -> None:
        if not self.row:
            return
        whole = self._along_row(self.shape)
        if not prod(whole):
            raise BadInput(f"a row must have at least one element, got {self.shape} with the row {self.row}")
        for step in tree.reductions(self.expression):
            if self._along_row(self.shape_of(step.arguments[0])) != whole:
                raise BadInput(f"{step} must read an operand that is as long as the row, {by(whole)}")
        computed = self._along_row(self.shape_of(self.expression))
        if self.is_reduced and prod(computed) > 1:
            raise BadInput(f"{self.expression} differs inside a row, so `{OUTPUT}` must be as long as the row")
        if not self.is_reduced and self._along_row(self.y.shape) != whole:
            raise BadInput(f"`{OUTPUT}` must have the whole row or one element of it, got {self.y.shape}")

    def _check_groups(self) -> None:
        if self.groups < 1 or (self.groups > 1 and not self.row):
            raise BadInput(f"`groups` must be at least 1, and 1 without a row, got {self.groups}")
        if self.groups > 1 and self.shape[self.row[0]] % self.groups:
            size = self.shape[self.row[0]]
            raise BadInput(f"`groups` must divide the first dimension of a row, {size}, got {self.groups}")

    @property
    def dtype(self) -> DType:
        """FP64 if any operand is, else the output's type."""
        stored = {spec.dtype for spec in self.operands.values()}
        return DType.FP64 if DType.FP64 in stored else self.y.dtype

    @once
    def shape(self) -> tuple[int, ...]:
        """The shape before a row is reduced; the output's shape if that has whole rows."""
        read = [spec.shape for _, spec in self.inputs]
        if any(len(shape) != len(self.y.shape) for shape in read):
            return self.y.shape
        sizes = zip(self.y.shape, *read, strict=True)
        return tuple(
            max(own, *others) if dim in self.row and own == 1 else own for dim, (own, *others) in enumerate(sizes)
        )

    @property
    def elementwise(self) -> frozenset[str]:
        """The operands with the output's layout, each element of which affects only the same element of the output."""
        alike = self.y.shape, self.y.strides, self.y.dtype
        here = (name for name, spec in self.inputs if (spec.shape, spec.strides, spec.dtype) == alike)
        return frozenset(here) if not self.row else frozenset()

    @property
    def row_size(self) -> int:
        """Elements of a row."""
        return prod(self._along_row(self.shape)) // self.groups

    @property
    def is_reduced(self) -> bool:
        """Whether the output has one element for each row."""
        return prod(self._along_row(self.y.shape)) == 1 and self.row_size > 1

    def shape_of(self, step: Expression) -> tuple[int, ...]:
        """The shape of a part of the expression, 1 where it is broadcast; all 1 for a number."""
        given = dict(self.inputs)

        def sizes(step: Expression, arguments: list[tuple[int, ...]]) -> tuple[int, ...]:
            if isinstance(step, tree.Operand):
                return given[step.name].shape
            ones = (1,) * len(self.y.shape)
            pairs = zip(ones, *arguments, strict=True)
            merged = tuple(0 if 0 in each else max(each) for each in pairs)
            if not tree.is_reduction(step):
                return merged
            reduced = dict.fromkeys(self.row, 1) | {self.row[0]: self.groups}
            return tuple(reduced.get(dim, size) for dim, size in enumerate(merged))

        return tree.evaluate(step, sizes)

    @once
    def ungrouped(self) -> PointwiseProblem:
        """The same problem on the same memory without groups: the dimension that they divide becomes two."""
        if self.groups == 1:
            return self
        inputs = tuple((name, self._divided(spec)) for name, spec in self.inputs)
        row = tuple(dim + 1 for dim in self.row)
        return replace(self, inputs=inputs, y=self._divided(self.y), row=row, groups=1)

    def _divided(self, spec: TensorSpec) -> TensorSpec:
        dim = self.row[0]
        size, stride = spec.shape[dim], spec.strides[dim]
        groups = self.groups if size > 1 else 1
        shape = (*spec.shape[:dim], groups, size // groups, *spec.shape[dim + 1 :])
        strides = (*spec.strides[:dim], stride * (size // groups), stride, *spec.strides[dim + 1 :])
        return replace(spec, shape=shape, strides=strides)

    def _along_row(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        return tuple(shape[dim] for dim in self.row)

    @property
    def operands(self) -> Mapping[str, TensorSpec]:
        return {**dict(self.inputs), OUTPUT: self.y}

    @property
    def flops(self) -> int:
        return prod(self.shape) * tree.flops(self.expression)

    @property
    def reduction(self) -> int:
        return max(len(tree.steps(self.expression)) - len(self.inputs), self.row_size if self.row else 1)

    def error_bound(self, arithmetic: Arithmetic) -> float:
        """1: errors are divided by the sum of what each step of the expression may add."""
        return 1.0 + _SECOND_ORDER


def _check(name: str, spec: TensorSpec, shape: tuple[int, ...]) -> None:
    if spec.dtype not in IN_PYTORCH:
        raise BadInput(f"`{name}` must be stored in {', '.join(IN_PYTORCH)}, got {spec.dtype}")
    fits = len(spec.shape) == len(shape) and all(
        size in (1, whole) for size, whole in zip(spec.shape, shape, strict=True)
    )
    if not fits:
        raise BadInput(f"`{name}` must have the sizes of the output, {shape}, or 1 in their place, got {spec.shape}")
