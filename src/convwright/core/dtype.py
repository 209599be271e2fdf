"""Storage types and arithmetic. A problem has storage types; a candidate has an arithmetic."""

from __future__ import annotations

from enum import StrEnum
from typing import Any, TypeVar

from convwright.naming import one_of


class DType(StrEnum):
    """How an operand is stored."""

    FP64 = "fp64"
    FP32 = "fp32"
    FP16 = "fp16"
    BF16 = "bf16"
    INT8 = "int8"
    FP8_E4M3 = "fp8_e4m3"
    FP8_E5M2 = "fp8_e5m2"

    @property
    def nbytes(self) -> int:
        return _NBYTES[self]

    @property
    def roundoff(self) -> float:
        """Half the distance from 1 to the next number: the largest relative error of one rounding.

        Integers are evenly spaced, so for int8 it is an absolute error.
        """
        return _ROUNDOFF[self]

    @property
    def narrow(self) -> bool:
        """True for one-byte types. Products need more bits, so their problems state the type of the output. No result
        is stored in such a type unless its operand was."""
        return self in _OUTPUTS

    @property
    def outputs(self) -> tuple[DType, ...]:
        """The possible types of an output for operands of this type, the default first.

        >>> DType.INT8.outputs[0], DType.FP16.outputs
        (<DType.FP32: 'fp32'>, (<DType.FP16: 'fp16'>,))
        """
        return _OUTPUTS.get(self, (self,))

    @property
    def added(self) -> DType:
        """The type of a bias for operands of this type."""
        return DType.FP32 if self.narrow else self

    @classmethod
    def parse(cls, name: str) -> DType:
        """Read a dtype's name; ``float32`` and the like also work.

        >>> DType.parse("float16")
        <DType.FP16: 'fp16'>
        """
        return one_of(cls, "dtype", _short_name(name))


_Named = TypeVar("_Named", bound=StrEnum)


def one_of_dtypes(kind: type[_Named], argument: str, given: Any) -> _Named:
    """The member of ``kind`` called ``given``. Members that are dtypes have the same aliases as in ``DType``."""
    name = _short_name(str(given))
    return one_of(kind, argument, name if name in list(kind) else given)


def _short_name(name: str) -> str:
    """A dtype's name as this package writes it. Other words are returned in lower case.

    >>> _short_name("torch.float16"), _short_name("half"), _short_name("FP16"), _short_name("tf32")
    ('fp16', 'fp16', 'fp16', 'tf32')
    """
    return _ALIASES.get(name.lower().removeprefix("torch."), name.lower())


_NBYTES = {
    DType.FP64: 8, DType.FP32: 4, DType.FP16: 2, DType.BF16: 2,
    DType.INT8: 1, DType.FP8_E4M3: 1, DType.FP8_E5M2: 1,
}  # fmt: skip
_ROUNDOFF = {
    DType.FP64: 2.0**-53, DType.FP32: 2.0**-24, DType.FP16: 2.0**-11, DType.BF16: 2.0**-8,
    DType.INT8: 0.5, DType.FP8_E4M3: 2.0**-4, DType.FP8_E5M2: 2.0**-3,
}  # fmt: skip
_OUTPUTS = {
    DType.INT8: (DType.FP32, DType.FP16, DType.BF16, DType.INT8),
    DType.FP8_E4M3: (DType.FP32, DType.FP16, DType.BF16),
    DType.FP8_E5M2: (DType.FP32, DType.FP16, DType.BF16),
}
# The types that PyTorch's own convolutions support.
IN_PYTORCH = tuple(dtype for dtype in DType if not dtype.narrow)
_ALIASES = {
    "float64": "fp64", "double": "fp64", "f64": "fp64",
    "float32": "fp32", "float": "fp32", "f32": "fp32",
    "float16": "fp16", "half": "fp16", "f16": "fp16",
    "bfloat16": "bf16",
    "int8": "int8", "s8": "int8",
    "float8_e4m3fn": "fp8_e4m3", "f8_e4m3": "fp8_e4m3", "e4m3": "fp8_e4m3",
    "float8_e5m2": "fp8_e5m2", "f8_e5m2": "fp8_e5m2", "e5m2": "fp8_e5m2",
}  # fmt: skip


class Arithmetic(StrEnum):
    """How a candidate multiplies and adds."""

    FP64 = "fp64"
    FP32 = "fp32"
    TF32 = "tf32"
    TF32X3 = "3xtf32"
    FP16X3 = "3xfp16"
    SCALED_FP16 = "scaled-fp16"
    FP16_ACC32 = "fp16-acc32"
    FP16_ACC16 = "fp16-acc16"
    BF16_ACC32 = "bf16-acc32"
    INT8 = "int8"
    FP8_ACC32 = "fp8-acc32"

    @property
    def products(self) -> int:
        """Hardware products for one product of the problem."""
        return 3 if self in _SPLIT else 1

    @property
    def range_limited(self) -> bool:
        """Whether numbers share a power of two: one 2^28 times smaller than the largest of them loses bits."""
        return self in (Arithmetic.FP16X3, Arithmetic.SCALED_FP16)

    @property
    def unit(self) -> Arithmetic:
        """The arithmetic whose peak rate limits this one."""
        return _UNITS.get(self, self)


# fp32 by products of two parts of each number.
_SPLIT = {Arithmetic.TF32X3: Arithmetic.TF32, Arithmetic.FP16X3: Arithmetic.FP16_ACC32}
_UNITS = _SPLIT | {Arithmetic.SCALED_FP16: Arithmetic.FP16_ACC32}


def native_arithmetic(dtype: DType, *, tf32: bool) -> Arithmetic:
    """PyTorch's own arithmetic under its TF32 flag; for types that PyTorch does not compute, the hardware's."""
    if dtype is DType.FP32:
        return Arithmetic.TF32 if tf32 else Arithmetic.FP32
    return _NATIVE[dtype]


_NATIVE = {
    DType.FP64: Arithmetic.FP64,
    DType.FP16: Arithmetic.FP16_ACC32,
    DType.BF16: Arithmetic.BF16_ACC32,
    DType.INT8: Arithmetic.INT8,
    DType.FP8_E4M3: Arithmetic.FP8_ACC32,
    DType.FP8_E5M2: Arithmetic.FP8_ACC32,
}


def plain_arithmetic(dtype: DType) -> Arithmetic:
    """The arithmetic of work without matrix products: fp32, unless the type is wider or an integer."""
    return {DType.FP64: Arithmetic.FP64, DType.INT8: Arithmetic.INT8}.get(dtype, Arithmetic.FP32)


_NO_COARSER_THAN_FP8 = frozenset(
    {Arithmetic.FP8_ACC32, Arithmetic.FP16_ACC32, Arithmetic.BF16_ACC32, Arithmetic.TF32, Arithmetic.FP32}
)


def permitted_arithmetic(dtype: DType, *, tf32: bool) -> frozenset[Arithmetic]:
    """All arithmetic at least as exact as PyTorch's flags allow. Sums in fp16 (``FP16_ACC16``) are never among them; a
    policy must name that."""
    finer = {
        DType.FP64: {Arithmetic.FP64},
        DType.FP32: {Arithmetic.FP32, Arithmetic.TF32X3, Arithmetic.FP16X3, Arithmetic.FP64},
        DType.FP16: {Arithmetic.FP16_ACC32, Arithmetic.FP32, Arithmetic.TF32},
        DType.BF16: {Arithmetic.BF16_ACC32, Arithmetic.FP32, Arithmetic.TF32},
        # Sums in int32 and fp64 are exact; long sums in fp32 are not.
        DType.INT8: {Arithmetic.INT8, Arithmetic.FP64},
        DType.FP8_E4M3: _NO_COARSER_THAN_FP8,
        DType.FP8_E5M2: _NO_COARSER_THAN_FP8,
    }[dtype]
    # With a shared power of two, fp16 rounds like TF32.
    scaled = {Arithmetic.SCALED_FP16} if dtype is DType.FP32 and tf32 else set[Arithmetic]()
    return frozenset(finer | scaled | {native_arithmetic(dtype, tf32=tf32)})
