"""Shield an engine from the caller's PyTorch modes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from convwright.errors import BadInput


@contextmanager
def undisturbed(device: torch.device) -> Iterator[None]:
    """No gradients and no autocast; tensors made inside may be written to outside of inference mode."""
    with torch.inference_mode(False), torch.no_grad(), torch.autocast(device.type, enabled=False):
        yield


def check_needs_no_gradient(given: Iterable[Any]) -> None:
    """Refuse an input whose gradient the caller expects: it would never come."""
    if torch.is_grad_enabled() and any(isinstance(each, Tensor) and each.requires_grad for each in given):
        raise BadInput(
            "an engine is for inference and computes no gradient, and its input requires one: call it in "
            "torch.no_grad(), or give x.detach(); to train, call the model itself"
        )
