"""A file of records, one line of JSON each. A record is written as soon as it is known."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

from convwright import strict_json
from convwright.errors import BadInput

_STDOUT = 1
# Lines of results are shorter. This much is read to find out whether a file holds results.
_MOST_LINE_BYTES = 1 << 26
_BLOCK_BYTES = 1 << 16


def as_line(data: Any) -> str:
    """``data`` as strict JSON on one line.

    >>> as_line({"low": float("-inf"), "names": ["a", "b"]})
    '{"low": "-inf", "names": ["a", "b"]}'
    """
    return strict_json.dumps(strict_json.in_words(data))


class Lines:
    """The file at ``path``. Each record has a ``benchmark``. An incomplete last line, left by a killed run, is
    removed."""

    def __init__(self, path: Path) -> None:
        self.path = path
        with self._writing():
            _check_kind(path)
            with path.open("ab+") as file:
                file.seek(0)
                if not _holds_records(_first_line(file)):
                    raise BadInput(f"{str(path)!r} does not hold benchmark results, and was not changed")
                _mend(file)

    def add(self, record: dict[str, Any]) -> None:
        """Keep one more record."""
        with self._writing(), self.path.open("a", encoding="utf-8") as file:
            file.write(as_line(record) + "\n")

    def read(self) -> list[dict[str, Any]]:
        """All records of the file."""
        try:
            lines = self.path.read_text(encoding="utf-8").splitlines()
        except UnicodeDecodeError:
            raise BadInput(f"{str(self.path)!r} is not a file of results: it is not text in UTF-8") from None
        return [self._record(line, number) for number, line in enumerate(lines, start=1) if line.strip()]

    @contextmanager
    def _writing(self) -> Iterator[None]:
        """Turn an ``OSError`` into ``BadInput``."""
        try:
            yield
        except OSError as error:
            raise BadInput(f"{str(self.path)!r} cannot be written to: {error.strerror or error}") from error

    def _record(self, line: str, number: int) -> dict[str, Any]:
        try:
            record = strict_json.loads(line)
        except ValueError:
            record = None
        if not isinstance(record, dict):
            raise BadInput(f"{self.path}, line {number}: a line of results must be a JSON object, got {line[:40]!r}")
        return record


def _check_kind(path: Path) -> None:
    """Refuse a path that is not a regular file: reading a device or a pipe may never end."""
    if not path.exists():
        return
    if not path.is_file():
        raise BadInput(f"results need a regular file, and {str(path)!r} is not one")
    if os.path.samestat(path.stat(), os.fstat(_STDOUT)):
        raise BadInput(f"the table is printed to {str(path)!r}: write the results to another file")


def _first_line(file: BinaryIO) -> bytes:
    """The first line that is not blank, cut off at the longest length of a line of results."""
    while (line := file.readline(_MOST_LINE_BYTES)) and not line.strip():
        pass
    return line


def _holds_records(first: bytes) -> bool:
    """Whether a file with this first line is empty or holds records. Each record names its benchmark. A line without an
    end may be the beginning of a record."""
    if not first.endswith(b"\n"):
        return b'{"'.startswith(first[:2])
    try:
        record = strict_json.loads(first)
    except ValueError:
        return False
    return isinstance(record, dict) and "benchmark" in record


def _mend(file: BinaryIO) -> None:
    """If the last line has no end, add it; if that line is not JSON, remove it."""
    start, last = _last_line(file)
    if not last:
        return
    try:
        strict_json.loads(last)
        file.write(b"\n")
    except ValueError:
        file.truncate(start)


def _last_line(file: BinaryIO) -> tuple[int, bytes]:
    """The bytes after the last newline, and their position. The file is read backwards, block by block."""
    start, last = file.seek(0, os.SEEK_END), b""
    while start > 0:
        size = min(start, max(_BLOCK_BYTES, len(last)))
        start = file.seek(start - size)
        whole, newline, last = (file.read(size) + last).rpartition(b"\n")
        if newline:
            return start + len(whole) + 1, last
    return 0, last
