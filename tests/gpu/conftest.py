"""What tests on a GPU share."""

from __future__ import annotations

import pytest

from convwright.core.device import DeviceFacts
from convwright.measuring.machine import device_facts


@pytest.fixture(scope="module")
def live() -> DeviceFacts:
    """The GPU at hand."""
    return device_facts("cuda")
