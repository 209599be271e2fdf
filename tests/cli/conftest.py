"""A user's own file, for the commands that take a model out of one."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

SOURCE = """
import torch

print("imported")


class Loud(torch.nn.Conv2d):
    def forward(self, x):
        print("ran")
        return super().forward(x)


def made():
    print("made")
    return Loud(2, 4, 1), torch.ones(1, 2, 4, 4)


def narrow():
    return torch.nn.Conv2d(3, 4, 1), torch.ones(1, 2, 4, 4)
"""


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file with a model that prints, and with one that its example does not fit."""
    monkeypatch.setattr(sys, "path", list(sys.path))
    path = tmp_path / "own.py"
    path.write_text(SOURCE)
    return path
