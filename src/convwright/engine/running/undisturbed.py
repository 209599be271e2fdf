"""How a planned network runs, whatever modes of PyTorch's its caller has on."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch


@contextmanager
def undisturbed(device: torch.device) -> Iterator[None]:
    """No gradients and no autocast; tensors made here may be written to outside of inference mode too."""
    with torch.inference_mode(False), torch.no_grad(), torch.autocast(device.type, enabled=False):
        yield
