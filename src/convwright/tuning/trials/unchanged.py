"""Verify that a candidate does not change its operands, which the next candidate needs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from convwright.core.direction import Role
from convwright.errors import BackendError

# Bits are compared, since NaN does not equal NaN.
_BITS = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
_WRITTEN = (Role.BEFORE, Role.DB)


@contextmanager
def unchanged(operands: Mapping[Any, Tensor]) -> Iterator[None]:
    """Raise an error if an operand was changed inside, and restore it."""
    read = {role: each for role, each in operands.items() if role not in _WRITTEN}
    before = {role: each.clone() for role, each in read.items()}
    changed = []
    try:
        yield
    finally:
        changed = [role for role, each in read.items() if not torch.equal(_bits(each), _bits(before[role]))]
        for role in changed:
            read[role].copy_(before[role])
    if changed:
        raise BackendError(f"it changes its operand `{changed[0]}`")


def _bits(tensor: Tensor) -> Tensor:
    return tensor.view(_BITS[tensor.element_size()])
