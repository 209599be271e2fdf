"""The result of emitting: the text of two files, and their candidates."""

from __future__ import annotations

import os
from dataclasses import dataclass
from os import PathLike
from pathlib import Path

from convwright.core.candidate import Candidate
from convwright.core.record import Record
from convwright.errors import BadInput
from convwright.store.streams import writing

# Part of the first line of each file. Only files with it are ever replaced.
MARK = "emitted by convwright"


@dataclass(frozen=True, slots=True)
class EmittedC(Record):
    """A C source file and its header.

    ``chosen`` are the candidates that they run, one, or one per row of the table. ``left_out`` has the problems that
    were requested for the table but have no row, and the reasons.
    """

    name: str
    header: str
    source: str
    chosen: tuple[Candidate, ...]
    left_out: tuple[tuple[str, str], ...] = ()

    def write(self, folder: str | PathLike[str] = ".") -> tuple[Path, Path]:
        """Write both files into ``folder``, which is created, and return their paths, the source's first.

        Files of earlier calls are replaced, other files are not. Links that lead out of the folder are not followed.
        """
        if not isinstance(folder, str | PathLike):
            raise BadInput(f"`folder` must be the path of a folder, got {folder!r}")
        place = Path(folder)
        if place.is_file():
            raise BadInput(f"{place} is a file: name the folder to write into")
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
    leads_to = Path(os.path.realpath(path))  # also resolves circular links
    if not leads_to.exists():
        raise BadInput(f"{path} is a link to {leads_to}, which does not exist: remove it or give another name")
    if not leads_to.is_relative_to(path.parent.resolve()):
        raise BadInput(f"{path} is a link to {leads_to}, outside the folder: remove it or give another name")


def _check_replaceable(path: Path) -> None:
    if not path.exists():
        return
    with path.open(encoding="utf-8", errors="replace") as file:
        if MARK not in file.readline():
            raise BadInput(f"{path} exists and was not emitted by convwright: give another name")
