"""PyTorch's own switches, read at the call: they say what a user has already permitted."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace

from torch import Tensor

from convwright import torch_api
from convwright.core.device import DeviceFacts
from convwright.core.dtype import Arithmetic, DType, permitted_arithmetic
from convwright.core.policy import Policy

deterministic = torch_api.deterministic
# NVIDIA's libraries read it when they are loaded, and then use no TF32 whatever the flags allow.
_without_tf32 = os.environ.get("NVIDIA_TF32_OVERRIDE") == "0"


def tf32_allowed() -> bool:
    """True where PyTorch may compute fp32 convolutions on a GPU in TF32, as is its default: it does so by cuDNN."""
    return torch_api.cudnn_enabled() and _tf32_flag()


def _tf32_flag() -> bool:
    if _without_tf32:
        return False
    try:
        return torch_api.cudnn_tf32_allowed()
    except RuntimeError:  # convolutions and RNNs are set differently, which the older flag cannot say
        return bool(torch_api.fp32_precision("cuda", "conv") == "tf32")


def matmul_tf32_allowed() -> bool:
    """True where PyTorch may compute matrix products of fp32 on a GPU in TF32; by default it may not."""
    if _without_tf32:
        return False
    try:
        return torch_api.cublas_tf32_allowed()
    except RuntimeError:  # it was set by the newer flag, and the older one differs
        return bool(torch_api.fp32_precision("cuda", "matmul") == "tf32")


def cuda_lost() -> bool:
    """True in a child that was forked off a process which used CUDA: PyTorch does not let it be used there."""
    return torch_api.cuda_lost()


def tf32(allowed: bool) -> AbstractContextManager[None]:
    """Let PyTorch's convolutions use TF32, or not, inside the block."""
    return _set("conv", allowed) if tf32_allowed() != allowed else nullcontext()


def matmul_tf32(allowed: bool) -> AbstractContextManager[None]:
    """The same of matrix products."""
    return _set("matmul", allowed) if matmul_tf32_allowed() != allowed else nullcontext()


@contextmanager
def _set(operation: str, tf32: bool) -> Iterator[None]:
    before = torch_api.fp32_precision("cuda", operation)
    torch_api.set_fp32_precision("cuda", operation, "tf32" if tf32 else "ieee")
    try:
        yield
    finally:
        # PyTorch tells what holds, not whether it was set here or inherited: what "none" gives back was inherited.
        torch_api.set_fp32_precision("cuda", operation, "none")
        if torch_api.fp32_precision("cuda", operation) != before:
            torch_api.set_fp32_precision("cuda", operation, before)


def with_tf32(compute: Callable[..., Tensor], allowed: bool) -> Callable[..., Tensor]:
    """``compute``, with TF32 allowed or not whatever the flag says at the call."""

    def switched(*operands: Tensor | None) -> Tensor:
        if tf32_allowed() == allowed:
            return compute(*operands)
        with tf32(allowed):
            return compute(*operands)

    return switched


def with_matmul_tf32(compute: Callable[..., Tensor], allowed: bool) -> Callable[..., Tensor]:
    """The same by the flag of matrix products."""

    def switched(*operands: Tensor | None) -> Tensor:
        with matmul_tf32(allowed):
            return compute(*operands)

    return switched


def against_cudnn() -> str | None:
    """The sentence if a flag keeps PyTorch from using cuDNN; None otherwise."""
    return None if torch_api.cudnn_enabled() else "torch.backends.cudnn.enabled says that cuDNN is switched off"


def onednn_enabled() -> bool:
    """Whether PyTorch may use oneDNN for convolutions on a CPU."""
    return torch_api.onednn_enabled()


def state() -> tuple[object, ...]:
    """All flags that bear on the choice for a CUDA tensor, as one comparable value."""
    return (
        _tf32_flag(),
        torch_api.cudnn_deterministic(),
        torch_api.deterministic_algorithms(),
        torch_api.cudnn_enabled(),
        torch_api.cudnn_benchmark(),
    )


# The same for a tensor on a CPU.
state_on_cpu: Callable[[], object] = torch_api.onednn_enabled


def completed(policy: Policy, dtype: DType, device: DeviceFacts, *, kind: str = "conv") -> Policy:
    """``policy`` with what it leaves open filled in from PyTorch's flags for problems of a kind."""
    arithmetic = policy.arithmetic
    if arithmetic is None:
        allowed = matmul_tf32_allowed if kind == "linear" else tf32_allowed
        tf32 = device.kind == "cuda" and device.computes(Arithmetic.TF32) and allowed()
        arithmetic = permitted_arithmetic(dtype, tf32=tf32)
    return replace(policy, arithmetic=arithmetic, deterministic=policy.deterministic or deterministic())
