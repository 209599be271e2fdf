"""Whether somebody watches PyTorch's functions: a ``TorchFunctionMode`` sees those that are called, and no others."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import overrides
from torch.utils._device import DeviceContext

_C: Any = torch._C
_stack: Callable[[], list[Any]] = overrides._get_current_function_mode_stack
modes: Callable[[], int] = _C._len_torch_function_stack


def watched() -> bool:
    """True inside a mode that may want to see every function; the one of ``torch.set_default_device`` does not."""
    return modes() > 0 and any(type(mode) is not DeviceContext for mode in _stack())
