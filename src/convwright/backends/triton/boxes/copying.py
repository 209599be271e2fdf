"""Operands that Hopper's copy engine can load, and the number of blocks per multiprocessor."""

from __future__ import annotations

from collections.abc import Mapping

from convwright.backends.triton.boxes.window import APART_BYTES, Images
from convwright.backends.triton.multiprocessor import REGISTERS, shared_limit
from convwright.core.device import DeviceFacts
from convwright.core.dtype import DType
from convwright.core.problem import ConvProblem
from convwright.core.tensor_spec import TensorSpec

DTYPES = (DType.FP16, DType.BF16)
_ARCHITECTURE = "sm_90"
_LARGEST_STRIDE = 8


def architecture_reason(device: DeviceFacts) -> str | None:
    """Why a device has no copy engine; None if it has one, and in the interpreter."""
    if device.kind != "cuda" or device.architecture == _ARCHITECTURE:
        return None
    return f"needs the copy engine of {_ARCHITECTURE}, got {device.name} ({device.architecture})"


def stride_reason(problem: ConvProblem) -> str | None:
    """Why the copy engine cannot load a tap's input in one instruction; None if it can."""
    if max(problem.stride) <= _LARGEST_STRIDE:
        return None
    return f"needs strides of at most {_LARGEST_STRIDE}, got {'x'.join(map(str, problem.stride))}"


def copying_reason(images: Mapping[str, TensorSpec]) -> str | None:
    """Why the copy engine cannot load one of these operands; None if it can."""
    for name, spec in images.items():
        reason = aligned_reason(name, spec)
        strides = Images.of(spec).strides
        if any(stride <= 0 or stride * spec.dtype.nbytes % APART_BYTES for stride in strides):
            given = ", ".join(map(str, strides))
            reason = f"needs strides of `{name}` in multiples of {APART_BYTES} bytes, got {given} elements"
        if reason is not None:
            return reason
    return None


def aligned_reason(name: str, spec: TensorSpec) -> str | None:
    """Why the copy engine cannot start at the operand's address; None if it can."""
    if spec.alignment >= APART_BYTES:
        return None
    return f"needs `{name}` aligned to {APART_BYTES} bytes, got {spec.alignment}"


NUMBER_BYTES = 2
BARRIERS_BYTES = 2048  # barriers, and the loss by aligning buffers to 1024 bytes
_OWN_BYTES = 1024  # that a multiprocessor reserves for each block


def blocks_together(device: DeviceFacts, shared_bytes: int, registers: int, warps: int) -> int:
    """The number of blocks that fit with this much shared memory and this many registers per thread; 0 if none fits."""
    by_shared = (shared_limit(device) + _OWN_BYTES) // (shared_bytes + _OWN_BYTES)
    return min(REGISTERS // (32 * warps * registers), by_shared)
