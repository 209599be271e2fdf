"""Places that cannot be written to, also where tests run as root, to whom permissions mean nothing."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_NOBODY = 65534


@contextmanager
def read_only(path: Path) -> Iterator[None]:
    """Inside, neither the file, which need not be there, nor its folder can be written to. The folders above have to be
    open to everybody, as those of ``tmp_path`` are not."""
    if path.exists():
        path.chmod(0o444)
    path.parent.chmod(0o555)
    try:
        with _without_privileges():
            yield
    finally:
        path.parent.chmod(0o755)
        if path.exists():
            path.chmod(0o644)


@contextmanager
def _without_privileges() -> Iterator[None]:
    if os.geteuid() != 0:
        yield
        return
    os.seteuid(_NOBODY)
    try:
        yield
    finally:
        os.seteuid(0)
