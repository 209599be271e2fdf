"""Storage types and the arithmetic that computes with them. Storage is the problem's; arithmetic is the candidate's."""

from __future__ import annotations

from enum import StrEnum

from convwright.naming import one_of


class DType(StrEnum):
    """How an operand is stored."""

    FP64 = "fp64"
    FP32 = "fp32"
    FP16 = "fp16"
    BF16 = "bf16"

    @property
    def nbytes(self) -> int:
        return _NBYTES[self]

    @property
    def roundoff(self) -> float:
        """Half the distance from 1 to the next number: the largest relative error of one rounding."""
        return _ROUNDOFF[self]

    @classmethod
    def parse(cls, name: str) -> DType:
        """Read a dtype's name; ``float32`` and the like are understood too.

        >>> DType.parse("float16")
        <DType.FP16: 'fp16'>
        """
        text = _ALIASES.get(name.lower().removeprefix("torch."), name.lower())
        return one_of(cls, "dtype", text)


_NBYTES = {DType.FP64: 8, DType.FP32: 4, DType.FP16: 2, DType.BF16: 2}
_ROUNDOFF = {DType.FP64: 2.0**-53, DType.FP32: 2.0**-24, DType.FP16: 2.0**-11, DType.BF16: 2.0**-8}
_ALIASES = {
    "float64": "fp64", "double": "fp64", "f64": "fp64",
    "float32": "fp32", "float": "fp32", "f32": "fp32",
    "float16": "fp16", "half": "fp16", "f16": "fp16",
    "bfloat16": "bf16",
}  # fmt: skip


class Arithmetic(StrEnum):
    """How a candidate multiplies and adds."""

    FP64 = "fp64"
    FP32 = "fp32"
    TF32 = "tf32"
    TF32X3 = "3xtf32"
    FP16_ACC32 = "fp16-acc32"
    BF16_ACC32 = "bf16-acc32"

    @property
    def products(self) -> int:
        """Hardware products spent on one product of the problem."""
        return 3 if self is Arithmetic.TF32X3 else 1

    @property
    def unit(self) -> Arithmetic:
        """The arithmetic whose peak rate bounds this one."""
        return Arithmetic.TF32 if self is Arithmetic.TF32X3 else self


def native_arithmetic(dtype: DType, *, tf32: bool) -> Arithmetic:
    """What PyTorch itself computes with, given whether its flags allow TF32."""
    if dtype is DType.FP32:
        return Arithmetic.TF32 if tf32 else Arithmetic.FP32
    return {DType.FP64: Arithmetic.FP64, DType.FP16: Arithmetic.FP16_ACC32, DType.BF16: Arithmetic.BF16_ACC32}[dtype]


def permitted_arithmetic(dtype: DType, *, tf32: bool) -> frozenset[Arithmetic]:
    """All arithmetic that is no coarser than what PyTorch's flags allow at the call."""
    finer = {
        DType.FP64: {Arithmetic.FP64},
        DType.FP32: {Arithmetic.FP32, Arithmetic.TF32X3, Arithmetic.FP64},
        DType.FP16: {Arithmetic.FP16_ACC32, Arithmetic.FP32, Arithmetic.TF32},
        DType.BF16: {Arithmetic.BF16_ACC32, Arithmetic.FP32, Arithmetic.TF32},
    }[dtype]
    return frozenset(finer | {native_arithmetic(dtype, tf32=tf32)})
