"""What tests on a GPU share."""

from __future__ import annotations

import fcntl
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch

from convwright.core.device import DeviceFacts
from convwright.measuring.hardware.machine import device_facts


@pytest.fixture(scope="module")
def live() -> DeviceFacts:
    """The GPU at hand."""
    return device_facts("cuda")


@pytest.fixture
def much_memory() -> Iterator[Callable[[int], None]]:
    """Asks for so many bytes of the GPU's, or skips the test. Tests that ask have their turn one after the other, in
    whatever processes they run beside each other, and leave nothing in PyTorch's cache."""

    def needed(nbytes: int) -> None:
        if torch.cuda.mem_get_info()[0] < nbytes:
            pytest.skip(f"needs {nbytes:,} bytes of free GPU memory")

    gpu = torch.cuda.get_device_properties(torch.cuda.current_device()).uuid
    with (Path(tempfile.gettempdir()) / f"convwright-tests-{gpu}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        try:
            yield needed
        finally:
            torch.cuda.empty_cache()
