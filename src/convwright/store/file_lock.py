"""A lock by a locked file, which ends with its process at the latest."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path

from convwright.errors import StoreError

if sys.platform != "win32":
    import fcntl


@contextmanager
def held(beside: Path | None, name: str) -> Iterator[bool]:
    """Hold the lock of this name, by a file ``beside`` another, or in the system's temporary folder. False if it is
    held already, even by this process."""
    mark = sha256(name.encode()).hexdigest()[:16]
    try:
        handle = _open(beside, mark)
    except OSError as error:
        raise StoreError(
            f"the lock of {name} cannot be made at {error.filename}: {error.strerror or error}; "
            "use a store in a folder that can be written to"
        ) from error
    try:
        yield _taken(handle)
    finally:
        if sys.platform != "win32":
            fcntl.flock(handle, fcntl.LOCK_UN)  # a forked child may have the file open, too
        os.close(handle)


def _open(beside: Path | None, mark: str) -> int:
    if beside is None:
        owner = os.getuid() if sys.platform != "win32" else 0
        path = Path(tempfile.gettempdir()) / f"convwright-{owner}-{mark}.lock"
    else:
        beside.parent.mkdir(parents=True, exist_ok=True)
        path = beside.with_name(f"{beside.name}-{mark}.lock")
    return os.open(path, os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0), 0o644)


def _taken(handle: int) -> bool:
    if sys.platform == "win32":
        import msvcrt

        try:
            msvcrt.locking(handle, msvcrt.LK_NBLCK, 1)
        except OSError:
            return False
        return True
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
