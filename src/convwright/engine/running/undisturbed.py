"""Shield an engine from the caller's PyTorch modes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch


@contextmanager
def undisturbed(device: torch.device) -> Iterator[None]:
    """No gradients and no autocast; tensors made inside may be written to outside of inference mode."""
    with torch.inference_mode(False), torch.no_grad(), torch.autocast(device.type, enabled=False):
        yield
