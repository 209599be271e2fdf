"""Where to find the model of a key, so that missing estimates can be predicted."""

from __future__ import annotations

from dataclasses import dataclass

from convwright.core.dtype import DType, one_of_dtypes
from convwright.core.record import Record
from convwright.errors import BadInput


@dataclass(frozen=True, slots=True)
class ModelTarget(Record):
    """``target`` is module:function, or path/to/file.py:function. The function returns a model and an example input.

    ``dtype`` casts both first. ``precision`` is "fp16", "bf16" or "tf32" for all layers; inputs and outputs keep the
    model's own type.
    """

    key: str
    target: str
    dtype: str | None = None
    precision: str | None = None

    def __post_init__(self) -> None:
        for field in ("key", "target", "dtype", "precision"):
            value = getattr(self, field)
            if not (isinstance(value, str) and value) and not (value is None and field in ("dtype", "precision")):
                raise BadInput(f"`{field}` of a model must be a text that is not empty, got {value!r}")
        if self.dtype is not None and one_of_dtypes(DType, "`dtype` of a model", self.dtype).narrow:
            raise BadInput(f"`dtype` of a model must be fp16, bf16, fp32 or fp64, got {self.dtype!r}")
        if self.precision is not None:
            from convwright.engine.precision.lowering import Precision

            one_of_dtypes(Precision, "`precision` of a model", self.precision)
