"""Whether a place can be written to, asked before it is tried."""

from __future__ import annotations

import os
from pathlib import Path


def is_writable(path: Path) -> bool:
    """Whether this process may write to a file or folder that is there.

    >>> is_writable(Path("/dev/null"))
    True
    """
    return os.access(path, os.W_OK, effective_ids=os.access in os.supports_effective_ids)
