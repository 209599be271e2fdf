"""What pictures have in common: the files that they are written to, and their colours."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

from convwright.errors import BadInput

COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#e69f00")
_SUFFIXES = (".png", ".svg", ".pdf")


def picture_path(path: Path | str) -> Path:
    """The file of a picture, if it can be drawn and written."""
    path = Path(path)
    if path.suffix not in _SUFFIXES:
        raise BadInput(f"a picture is a file that ends in {', '.join(_SUFFIXES)}, got {str(path)!r}")
    if not path.parent.is_dir():
        raise BadInput(f"there is no folder {str(path.parent)!r} for the picture {path.name!r}: make it first")
    if find_spec("matplotlib") is None:
        raise BadInput("pictures are drawn by matplotlib, which is not installed here: pip install 'convwright[plot]'")
    return path
