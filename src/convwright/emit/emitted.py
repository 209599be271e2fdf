"""What was emitted: the text of two files, and what they compute."""

from __future__ import annotations

from dataclasses import dataclass
from os import PathLike
from pathlib import Path

from convwright.core.candidate import Candidate
from convwright.core.record import Record
from convwright.errors import BadInput
from convwright.tuning.keeping.streams import writing

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

        What an earlier call wrote is replaced; any other file of that name is not.
        """
        if not isinstance(folder, str | PathLike):
            raise BadInput(f"`folder` must be the path of a folder, got {folder!r}")
        place = Path(folder)
        paths = place / f"{self.name}.c", place / f"{self.name}.h"
        try:
            place.mkdir(parents=True, exist_ok=True)
            for path in paths:
                _check_replaceable(path)
            for path, text in zip(paths, (self.source, self.header), strict=True):
                with writing(path) as file:
                    file.write(text)
        except OSError as error:
            raise BadInput(f"{error.filename or place} cannot be written: {error.strerror or error}") from error
        return paths


def _check_replaceable(path: Path) -> None:
    if not path.exists():
        return
    with path.open(encoding="utf-8", errors="replace") as file:
        if MARK not in file.readline():
            raise BadInput(f"{path} is there already and is no file that convwright emitted: give another name")
