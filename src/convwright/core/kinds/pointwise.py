"""An expression, computed for each element of its broadcast operands."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from convwright.core.dtype import IN_PYTORCH, Arithmetic, DType
from convwright.core.kinds import expression as tree
from convwright.core.kinds import pointwise_text as text_form
from convwright.core.kinds.expression import Expression
from convwright.core.kinds.written import TextForm, WrittenProblem
from convwright.core.tensor_spec import TensorSpec
from convwright.errors import BadInput

OUTPUT = "y"
# Words that a text form uses otherwise.
_RESERVED = frozenset({OUTPUT, "out", "workspace", "before", "db", "dt", "tag", "dir", "ep"})
# What products of small errors add to a bound that counts them one by one.
_SECOND_ORDER = 0.01


@dataclass(frozen=True)
class PointwiseProblem(WrittenProblem):
    """``y = expression(operands)``, element by element.

    Every operand has as many dimensions as the output; one of size 1 is broadcast along it. Arithmetic is that of fp32,
    whatever the operands are stored in, or of fp64 where one of them is.

    >>> problem = PointwiseProblem.parse('pointwise "relu(a + b)" mb32ic64ih56 b:c')
    >>> problem.operands["b"].shape, problem.flops
    ((1, 64, 1, 1), 12845056)
    """

    kind: ClassVar[str] = "pointwise"
    text_form: ClassVar[TextForm] = text_form

    expression: Expression
    inputs: tuple[tuple[str, TensorSpec], ...]
    y: TensorSpec

    def __post_init__(self) -> None:
        read, given = tree.names(self.expression), dict(self.inputs)
        if not read or tree.is_condition(self.expression):
            raise BadInput(f"an expression must be a number that depends on operands, got {self.expression}")
        if reserved := [name for name in read if name in _RESERVED]:
            raise BadInput(f"an operand cannot be called {reserved[0]!r}, which is the name of something else")
        if set(read) != set(given) or len(given) != len(self.inputs):
            raise BadInput(f"`inputs` must be {', '.join(read)}, as in the expression, got {', '.join(given)}")
        for name in read:
            _check(name, given[name], self.y)
        if self.y.dtype not in IN_PYTORCH:
            raise BadInput(f"`{OUTPUT}` must be stored in {', '.join(IN_PYTORCH)}, got {self.y.dtype}")
        if self.y.overlaps_itself:
            raise BadInput(f"the output must not overlap itself, got strides {self.y.strides}")
        # Equal problems have equal keys, so the order is that of the expression.
        object.__setattr__(self, "inputs", tuple((name, given[name]) for name in read))

    @property
    def dtype(self) -> DType:
        """FP64 where any operand is stored so, else that of the output."""
        stored = {spec.dtype for spec in self.operands.values()}
        return DType.FP64 if DType.FP64 in stored else self.y.dtype

    @property
    def operands(self) -> Mapping[str, TensorSpec]:
        return {**dict(self.inputs), OUTPUT: self.y}

    @property
    def flops(self) -> int:
        return self.y.numel * tree.flops(self.expression)

    @property
    def reduction(self) -> int:
        return max(len(tree.steps(self.expression)) - len(self.inputs), 1)

    def error_bound(self, arithmetic: Arithmetic) -> float:
        """What errors are divided by grows with what each step of the expression may add, so that 1 is left."""
        return 1.0 + _SECOND_ORDER


def _check(name: str, spec: TensorSpec, y: TensorSpec) -> None:
    if spec.dtype not in IN_PYTORCH:
        raise BadInput(f"`{name}` must be stored in {', '.join(IN_PYTORCH)}, got {spec.dtype}")
    fits = len(spec.shape) == len(y.shape) and all(
        size in (1, whole) for size, whole in zip(spec.shape, y.shape, strict=True)
    )
    if not fits:
        raise BadInput(f"`{name}` must have the sizes of the output, {y.shape}, or 1 in their place, got {spec.shape}")
