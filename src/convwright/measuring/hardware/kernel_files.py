"""The files in which Linux tells what it knows of the machine."""

from __future__ import annotations

from pathlib import Path


def text_of(file: Path) -> str:
    """What it says; nothing where there is no such file, or only root may read it."""
    try:
        return file.read_text().strip()
    except OSError:
        return ""
