"""What Hopper's copy engine can bring, and how many blocks of such products fit on a multiprocessor."""

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
    """Why a device has no such engine; None where it has, and in the interpreter."""
    if device.kind != "cuda" or device.architecture == _ARCHITECTURE:
        return None
    return f"is written for the copy engine of {_ARCHITECTURE}, {device.name} is {device.architecture}"


def stride_reason(problem: ConvProblem) -> str | None:
    """Why it cannot bring what a tap reads at once; None where it can."""
    if max(problem.stride) <= _LARGEST_STRIDE:
        return None
    return f"serves strides up to {_LARGEST_STRIDE}, got {'x'.join(map(str, problem.stride))}"


def copying_reason(images: Mapping[str, TensorSpec]) -> str | None:
    """Why it cannot bring one of these; None where it can."""
    for name, spec in images.items():
        reason = aligned_reason(name, spec)
        strides = Images.of(spec).strides
        if any(stride <= 0 or stride * spec.dtype.nbytes % APART_BYTES for stride in strides):
            given = ", ".join(map(str, strides))
            reason = f"needs strides of multiples of {APART_BYTES} bytes in `{name}`, got {given} elements"
        if reason is not None:
            return reason
    return None


def aligned_reason(name: str, spec: TensorSpec) -> str | None:
    """Why it cannot begin where an operand does; None where it can."""
    if spec.alignment >= APART_BYTES:
        return None
    return f"needs that `{name}` begins at a multiple of {APART_BYTES} bytes, got {spec.alignment}"


NUMBER_BYTES = 2
BARRIERS_BYTES = 2048  # and what is lost where buffers begin at a multiple of 1024 bytes
_OWN_BYTES = 1024  # that a multiprocessor keeps of each block


def blocks_together(device: DeviceFacts, shared_bytes: int, registers: int, warps: int) -> int:
    """How many fit that take so much shared memory, and so many registers a thread; 0 where not one does."""
    by_shared = (shared_limit(device) + _OWN_BYTES) // (shared_bytes + _OWN_BYTES)
    return min(REGISTERS // (32 * warps * registers), by_shared)
