"""Matrix products with a weight, as in ``nn.Linear``, with a fused epilogue."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from convwright.core.direction import Role
from convwright.core.dtype import IN_PYTORCH, Arithmetic, DType
from convwright.core.epilogue import Epilogue
from convwright.core.error_bound import scaled_bound
from convwright.core.kinds import linear_text as text_form
from convwright.core.kinds.written import TextForm, WrittenProblem
from convwright.core.tensor_spec import TensorSpec
from convwright.errors import BadInput


@dataclass(frozen=True)
class LinearProblem(WrittenProblem):
    """``y = activation(x @ w.T + residual + bias)`` with x (rows, inputs), w (outputs, inputs) and y (rows, outputs).

    Dimensions before the last are rows. Its gradients are linear problems with other layouts.

    >>> problem = LinearProblem.of(32, 512, 1000, dtype="fp16", epilogue="bias+relu")
    >>> problem.key, problem.flops
    ('linear mb32ic512oc1000 dt:fp16 tag:row ep:bias+relu', 32768000)
    """

    kind: ClassVar[str] = "linear"
    text_form: ClassVar[TextForm] = text_form

    x: TensorSpec
    w: TensorSpec
    y: TensorSpec
    epilogue: Epilogue = Epilogue()

    def __post_init__(self) -> None:
        shapes = [spec.shape for spec in (self.x, self.w, self.y)]
        if any(len(shape) != 2 for shape in shapes):
            raise BadInput(f"operands of a linear problem have two dimensions, got {shapes}")
        (rows, inputs), (outputs, read) = shapes[:2]
        if read != inputs or self.y.shape != (rows, outputs):
            raise BadInput(f"x {shapes[0]}, w {shapes[1]} and y {shapes[2]} are no (n, c), (k, c) and (n, k)")
        if min(inputs, outputs) < 1:
            raise BadInput(f"a linear problem needs at least one input and one output, got {inputs} and {outputs}")
        if not self.x.dtype == self.w.dtype == self.y.dtype or self.x.dtype not in IN_PYTORCH:
            stored = ", ".join(spec.dtype for spec in (self.x, self.w, self.y))
            raise BadInput(f"operands of a linear problem are stored in one of {', '.join(IN_PYTORCH)}, got {stored}")
        if self.epilogue.scale or self.epilogue.accumulate:
            raise BadInput(f"a linear problem fuses residual, bias and an activation, got {self.epilogue}")
        if self.y.overlaps_itself:
            raise BadInput(f"the output must not overlap itself, got strides {self.y.strides}")

    @classmethod
    def of(
        cls,
        rows: int,
        inputs: int,
        outputs: int,
        *,
        dtype: DType | str = DType.FP32,
        epilogue: Epilogue | str = Epilogue(),
    ) -> LinearProblem:
        """A problem with dense operands."""
        kind = DType.parse(str(dtype))
        x, w, y = (TensorSpec(shape, kind) for shape in ((rows, inputs), (outputs, inputs), (rows, outputs)))
        return cls(x, w, y, Epilogue.parse(epilogue) if isinstance(epilogue, str) else epilogue)

    @property
    def rows(self) -> int:
        return self.x.shape[0]

    @property
    def inputs(self) -> int:
        return self.x.shape[1]

    @property
    def width(self) -> int:
        """Outputs of one row."""
        return self.w.shape[0]

    @property
    def dtype(self) -> DType:
        return self.x.dtype

    @property
    def operands(self) -> Mapping[str, TensorSpec]:
        added = {Role.RESIDUAL: (self.epilogue.residual, self.y)}
        added |= {Role.BIAS: (self.epilogue.bias, TensorSpec((self.width,), self.dtype))}
        there = {role: spec for role, (is_there, spec) in added.items() if is_there}
        named = {Role.X: self.x, Role.W: self.w} | there | {Role.Y: self.y}
        return {str(role): spec for role, spec in named.items()}

    @property
    def flops(self) -> int:
        return 2 * self.rows * self.inputs * self.width

    @property
    def reduction(self) -> int:
        return self.inputs

    def error_bound(self, arithmetic: Arithmetic) -> float:
        return scaled_bound(arithmetic, self.y.dtype, self.inputs, self.epilogue.activation)
