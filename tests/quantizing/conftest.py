"""The network that most tests quantise."""

from __future__ import annotations

import pytest
import torch

from quantizing.nets import Net, trained


@pytest.fixture
def net() -> Net:
    torch.manual_seed(3)
    made: Net = trained(Net())
    return made
