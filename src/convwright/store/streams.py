"""What lines are written to and read from: the file at a path, or one that is open."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from shutil import copymode
from typing import TextIO

from convwright.errors import BadInput


@contextmanager
def writing(target: Path | str | TextIO) -> Iterator[TextIO]:
    """The open file itself, or one that takes its place at the path when all is written."""
    if not isinstance(target, Path | str):
        yield target
        return
    path = Path(target)
    # A device such as /dev/stdout is written to, not replaced, and a link stays: what it leads to is replaced.
    ordinary, place = path.is_file() or not path.exists(), path.resolve()
    draft = place.with_name(f"{place.name}.{os.getpid()}") if ordinary else path
    try:
        with draft.open("w", encoding="utf-8", newline="\n") as file:
            yield file
        if ordinary:
            if place.exists():
                copymode(place, draft)
            draft.replace(place)
    except OSError as error:
        raise BadInput(f"{path} cannot be written to: {error.strerror or error}") from error
    finally:
        if ordinary:
            with suppress(OSError):
                draft.unlink(missing_ok=True)


@contextmanager
def reading(source: Path | str | TextIO) -> Iterator[tuple[Iterable[str | bytes], str]]:
    """The lines, and what to call their file in a sentence. Those of a path are bytes: each may be bad by itself."""
    if not isinstance(source, Path | str):
        yield source, str(getattr(source, "name", "the file"))
        return
    try:
        with Path(source).open("rb") as file:
            yield file, str(source)
    except OSError as error:
        raise BadInput(f"{source} cannot be read: {error.strerror or error}") from error
