"""Open a path, or use an open file, for reading and writing lines."""

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
    """The open file itself, or a new one that replaces the path when everything is written."""
    if not isinstance(target, Path | str):
        yield target
        return
    path = Path(target)
    # A device such as /dev/stdout is written directly. A link stays, and its target is replaced.
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
    """The lines, and a name of their file for errors. Lines of a path are bytes, so that each can be checked alone."""
    if not isinstance(source, Path | str):
        yield source, str(getattr(source, "name", "the file"))
        return
    try:
        with Path(source).open("rb") as file:
            yield file, str(source)
    except OSError as error:
        raise BadInput(f"{source} cannot be read: {error.strerror or error}") from error
