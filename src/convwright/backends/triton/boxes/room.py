"""The room that blocks of products of boxes take on a multiprocessor."""

from __future__ import annotations

from convwright.backends.triton.multiprocessor import REGISTERS, shared_limit
from convwright.core.device import DeviceFacts

NUMBER_BYTES = 2
BARRIERS_BYTES = 2048  # and what is lost where buffers begin at a multiple of 1024 bytes
_OWN_BYTES = 1024  # that a multiprocessor keeps of each block


def blocks_together(device: DeviceFacts, shared_bytes: int, registers: int, warps: int) -> int:
    """How many fit that take so much shared memory, and so many registers a thread; 0 where not one does."""
    by_shared = (shared_limit(device) + _OWN_BYTES) // (shared_bytes + _OWN_BYTES)
    return min(REGISTERS // (32 * warps * registers), by_shared)
