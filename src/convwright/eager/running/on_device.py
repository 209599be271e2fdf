"""The operands' GPU as the current one, where there are several."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import torch

Made = TypeVar("Made")


def on_device(run: Callable[..., Made], device: torch.device) -> Callable[..., Made]:
    """``run`` with ``device`` as the current GPU; ``run`` itself where there is no other."""
    if device.type == "cpu" or torch.cuda.device_count() < 2:
        return run
    current = torch._C._cuda_getDevice

    def switched(*operands: Any, **more: Any) -> Made:
        if current() == device.index:
            return run(*operands, **more)
        with torch.cuda.device(device):
            return run(*operands, **more)

    return switched
