"""What was emitted: the text of two files, and what they compute."""

from __future__ import annotations

import os
from dataclasses import dataclass
from os import PathLike
from pathlib import Path

from convwright.core.candidate import Candidate
from convwright.core.record import Record
from convwright.errors import BadInput
from convwright.store.streams import writing

# Stands in the first line of each file, so that only such files are ever replaced.
MARK = "emitted by convwright"


@dataclass(frozen=True, slots=True)
class EmittedC(Record):
    """A C source file and its header.

    ``chosen`` are the candidates that they run, one, or one for each row of the table; ``left_out`` says of each
    problem that the table was to have why it has no row.
    """

    name: str
    header: str
    source: str
    chosen: tuple[Candidate, ...]
    left_out: tuple[tuple[str, str], ...] = ()

    def write(self, folder: str | PathLike[str] = ".") -> tuple[Path, Path]:
        """Write both files into ``folder``, which is made, and return their paths, the source's first.

        What an earlier call wrote is replaced, any other file of that name is not. No link out of the folder is
        followed.
        """
        if not isinstance(folder, str | PathLike):
            raise BadInput(f"`folder` must be the path of a folder, got {folder!r}")
        place = Path(folder)
        paths = place / f"{self.name}.c", place / f"{self.name}.h"
        try:
            place.mkdir(parents=True, exist_ok=True)
            for path in paths:
                _check_link(path)
                _check_replaceable(path)
            for path, text in zip(paths, (self.source, self.header), strict=True):
                with writing(path) as file:
                    file.write(text)
        except OSError as error:
            raise BadInput(f"{error.filename or place} cannot be written: {error.strerror or error}") from error
        return paths


def _check_link(path: Path) -> None:
    if not path.is_symlink():
        return
    leads_to = Path(os.path.realpath(path))  # which takes links in a circle as well
    if not leads_to.exists():
        raise BadInput(f"{path} is a link to {leads_to}, which is not there: remove it or give another name")
    if not leads_to.is_relative_to(path.parent.resolve()):
        raise BadInput(f"{path} is a link to {leads_to}, outside of the folder: remove it or give another name")


def _check_replaceable(path: Path) -> None:
    if not path.exists():
        return
    with path.open(encoding="utf-8", errors="replace") as file:
        if MARK not in file.readline():
            raise BadInput(f"{path} is there already and is no file that convwright emitted: give another name")
