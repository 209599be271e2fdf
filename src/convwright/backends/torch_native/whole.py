"""What backends that call PyTorch's own operators have in common, whatever the kind of problem."""

from __future__ import annotations

import torch

from convwright.core.device import DeviceFacts


def torch_version() -> str:
    """PyTorch, as fingerprints name it."""
    return f"torch {torch.__version__}"


def why_not_asked(device: DeviceFacts) -> str | None:
    """Why PyTorch cannot compute anything on ``device``; None where it can."""
    if device.present:
        return None
    return f"PyTorch can only be asked on a device that is present, not on {device.name}"
