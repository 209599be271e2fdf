"""What all pictures share: the check of the file that they are drawn to, and their colours."""

from __future__ import annotations

import errno
import os
from importlib.util import find_spec
from pathlib import Path

from convwright.errors import BadInput
from convwright.writable import is_writable

COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#e69f00")
_SUFFIXES = (".png", ".svg", ".pdf")


def picture_path(path: Path | str) -> Path:
    """The file to draw to. Refuses a file that cannot be written, so call it before a long measurement."""
    path = Path(path)
    if path.suffix.lower() not in _SUFFIXES:
        raise BadInput(f"the name of a picture must end in {', '.join(_SUFFIXES)}, got {str(path)!r}")
    if not path.parent.is_dir():
        raise BadInput(f"there is no folder {str(path.parent)!r} for the picture {path.name!r}: create it first")
    if path.is_dir() or not is_writable(path if path.exists() else path.parent):
        reason = os.strerror(errno.EISDIR if path.is_dir() else errno.EACCES)
        raise BadInput(f"{str(path)!r} cannot be written to: {reason}")
    if find_spec("matplotlib") is None:
        raise BadInput("pictures need matplotlib, which is not installed: pip install 'convwright[plot]'")
    return path
