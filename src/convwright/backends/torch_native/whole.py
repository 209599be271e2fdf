"""Shared by the backends that call PyTorch's own operators, for every kind of problem."""

from __future__ import annotations

import torch

from convwright.core.device import DeviceFacts


def torch_version() -> str:
    """PyTorch's name in fingerprints."""
    return f"torch {torch.__version__}"


def why_not_asked(device: DeviceFacts) -> str | None:
    """Why PyTorch cannot compute anything on ``device``; None if it can."""
    if device.present:
        return None
    return f"PyTorch needs a device of this machine, got {device.name}"
